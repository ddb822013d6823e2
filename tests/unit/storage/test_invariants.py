"""Checks that the storage modules assert the invariants that they state."""

import pytest

from builders.logs import SMALL, append_durably, key, open_store, run
from millstream.records.batch import encode_batch
from millstream.records.header import BatchHeader, read_header, stamp
from millstream.storage.cleaning.cleaning_state import CleaningState
from millstream.storage.log.write_buffer import WriteBuffer
from millstream.testing.simulated.disk import SimulatedDisk


def batch(base_offset: int, *, producer_id: int = -1) -> tuple[memoryview, BatchHeader]:
    data = bytearray(encode_batch([b"a"], timestamps=1000, producer_id=producer_id))
    stamp(data, base_offset=base_offset, leader_epoch=0)
    return memoryview(data), read_header(memoryview(data))


def test_a_write_buffer_takes_one_batch_of_each_producer() -> None:
    buffer = WriteBuffer()
    buffer.add(*batch(5, producer_id=7))
    buffer.add(*batch(6, producer_id=8))
    with pytest.raises(AssertionError, match="one batch per producer"):
        buffer.add(*batch(7, producer_id=7))


@pytest.mark.parametrize(("written", "end"), [(4, 7), (6, 7), (5, 6), (5, 8)])
def test_a_write_buffer_covers_the_log_from_its_written_offset_to_its_end(written: int, end: int) -> None:
    buffer = WriteBuffer()
    buffer.add(*batch(5))
    buffer.add(*batch(6))
    with pytest.raises(AssertionError, match="no gap"):
        buffer.take(written_offset=written, end_offset=end)
    assert len(buffer.take(written_offset=5, end_offset=7).headers) == 2


def test_the_stage_of_an_exchange_changes_only_under_the_lock() -> None:
    async def check() -> None:
        state = CleaningState()
        with pytest.raises(AssertionError, match="the lock"):
            state.settled()
        async with state.lock:
            state.settled()
            with pytest.raises(AssertionError, match="the stage"):
                state.done()

    run(check())


def test_a_journal_is_removed_only_after_a_checkpoint_without_it() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"a"])
        (directory,) = store._directories
        with pytest.raises(AssertionError, match="a journal goes after"):
            await directory._remove_journals(directory.next_journal + 1)
        await store.checkpoint()

    run(check())


def test_a_segment_is_removed_only_below_the_log_start() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"a"])
        (directory,) = store._directories
        with pytest.raises(AssertionError, match="deleted segments"):
            await directory._remove_files([(log, log.segments)], [], [])
        with pytest.raises(AssertionError, match="exchanges"):
            await directory._remove_files([], [], [log])

    run(check())
