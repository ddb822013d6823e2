"""Checks that the size of a log is the sum of its segments after each transition, and that it walks no segments."""

from collections.abc import Iterator

from builders.logs import SMALL, append_durably, key, logs_of, open_store, run
from millstream.model.ids import Offset
from millstream.storage.log.log import Log
from millstream.storage.log.segment import Segment
from millstream.testing.simulated.disk import SimulatedDisk


class CountedSegments(list[Segment]):
    """A segment list that counts the iterations over it."""

    iterations = 0

    def __iter__(self) -> Iterator[Segment]:
        self.iterations += 1
        return super().__iter__()


def sum_of_segments(log: Log) -> int:
    return sum(segment.size_bytes for segment in log.segments)


def test_the_size_of_a_log_is_read_without_walking_its_segments() -> None:
    async def story() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), SMALL)
        assert log.size_bytes == 0
        for _ in range(5):
            await append_durably(store, log, [b"value"])
            log.roll()
        counted = log.segments = CountedSegments(log.segments)
        size = log.size_bytes
        assert counted.iterations == 0
        assert size == sum_of_segments(log) > 0

    run(story())


def test_the_size_of_a_log_is_the_sum_of_its_segments_after_a_restart() -> None:
    disk = SimulatedDisk()

    async def first() -> int:
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        for _ in range(5):
            await append_durably(store, log, [b"value"])
            log.roll()
        log.trim(Offset(2))
        assert log.size_bytes == sum_of_segments(log)
        await store.close()
        return log.size_bytes

    async def second() -> int:
        (log,) = logs_of(await open_store(disk))
        assert log.size_bytes == sum_of_segments(log)
        return log.size_bytes

    assert run(first()) == run(second()) > 0
