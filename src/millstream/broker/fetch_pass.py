"""Reads the partitions of a fetch request once, within the size limit of the response.

A pass runs in slices. It pauses after `SLICE` partitions, so that the event loop can run other work. It also pauses at
a partition whose data is not in the page cache, so that a worker can read it. `LongPoll` decides how to wait.

Size limit: a response exceeds its limit only by its first batch, which is included whatever its size. A local reader
receives the position in the file instead of the data, and then only a part of the data's size counts.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from millstream.broker.dispatch.capabilities import LedElsewhereError, PartitionLookup, find_partition, leader_for
from millstream.model.authorization import Access
from millstream.model.errors import MillstreamError
from millstream.model.ids import Offset
from millstream.model.waiters import Cancel
from millstream.partition.leadership import Leadership
from millstream.partition.offset_reader import OffsetNotReachedError
from millstream.seams.file_part import FilePart, FilePlace
from millstream.storage.log.log_reader import Stretch
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.fetch import FetchedPartition, FetchPartition, FetchRequest
from millstream.wire.framing import Buffer
from millstream.wire.topic_ref import TopicRef

SLICE = 1_000
NEAR_RATIO = 16
"""A local reader gets the position of this many times the bytes it asks for, since a position costs almost nothing."""

_READ_COMMITTED = 1
Want = tuple[TopicRef, FetchPartition]


class FetchPass:
    """One pass over the wanted partitions.

    Invariant: `fetched` holds the results of the first entries of `wants`, in order. As long as all of them were found,
    `_found` holds their partitions.
    """

    def __init__(
        self,
        partitions: PartitionLookup,
        wants: Sequence[Want],
        fetch: FetchRequest,
        access: Access,
        budget: int,
        near: bool,
    ) -> None:
        """`budget` is the number of bytes that may be sent. A `near` reader receives file positions instead of data."""
        self._wants = wants
        self.fetched: list[FetchedPartition] = []
        self._partitions = partitions
        self._access = access
        self._found: list[Leadership] = []
        self._read: list[tuple[Leadership, int, int]] = []
        """The partitions with data, and its bytes and messages."""
        self._has_error = False
        self._size_bytes = 0
        self._left = budget
        self._min_bytes = fetch.min_bytes
        self._near = near
        self._aborted: tuple[tuple[int, int], ...] | None = None if fetch.isolation_level != _READ_COMMITTED else ()
        self._cold: Leadership | None = None
        """The partition to read next, if its data must be read from disk."""

    @property
    def is_finished(self) -> bool:
        return len(self.fetched) == len(self._wants)

    @property
    def is_enough(self) -> bool:
        return self._has_error or self._size_bytes >= max(self._min_bytes, 1) or not self._wants

    @property
    def is_hungry(self) -> bool:
        if self._left > 0 or self._size_bytes:
            return False
        return any(
            want.offset < fetched.high_watermark for (_, want), fetched in zip(self._wants, self.fetched, strict=True)
        )

    def rows(self) -> Iterable[tuple[TopicRef, FetchedPartition]]:
        return ((topic, fetched) for (topic, _), fetched in zip(self._wants, self.fetched, strict=True))

    def leaders(self) -> Sequence[CurrentLeader]:
        """The leaders of the partitions that are led elsewhere."""
        if not self._has_error:
            return ()
        return [each.current_leader for each in self.fetched if each.current_leader is not None]

    def answered(self) -> None:
        """Count what was read, once per response: a long poll repeats passes that find too little."""
        for partition, size_bytes, messages in self._read:
            partition.traffic.fetched(size_bytes, messages=messages)

    def run(self) -> None:
        """Read one slice, or up to a partition that must be read from disk."""
        start = len(self.fetched)
        for topic, want in self._wants[start : start + SLICE]:
            partition = place = None
            try:
                partition = find_partition(self._partitions, topic, want.partition, self._access)
                partition.check_leader_epoch(want.leader_epoch)
                left, offset = self._left, Offset(want.offset)
                if left <= 0:  # The response is full: report the partition's offsets without data.
                    partition.reader.check(offset)
                    found: Stretch | None = b"", offset
                elif self._near:
                    found, place = _read_near(partition, offset, min(want.max_bytes, left))
                else:
                    found = partition.reader.read(offset, max_bytes=min(want.max_bytes, left))
            except MillstreamError as error:
                self._fail(want, partition, error)
                continue
            if found is None:
                self._cold = partition
                return
            data, next_offset = found
            self._take(want, partition, data, next_offset, place)

    async def go_on(self) -> None:
        if self._cold is not None:
            await self._read_cold(self._cold)
        await asyncio.sleep(0)
        self.run()

    def waits(self, wake: Callable[[], None]) -> Iterable[list[Cancel]]:
        assert len(self._found) == len(self._wants), "a fetch with a partition that was not found is answered at once"
        cancels: list[Cancel] = []
        for partition, (_, want), fetched in zip(self._found, self._wants, self.fetched, strict=True):
            # Wait for offsets after those that this pass has seen: they were not enough for the reader.
            cancels.append(partition.reader.wait(Offset(max(want.offset, fetched.high_watermark)), wake))
            if len(cancels) == SLICE:
                yield cancels
                cancels = []
        yield cancels

    async def _read_cold(self, partition: Leadership) -> None:
        self._cold = None
        want = self._wants[len(self.fetched)][1]
        try:
            data, next_offset = await partition.reader.read_cold(
                Offset(want.offset), max_bytes=min(want.max_bytes, self._left)
            )
        except MillstreamError as error:
            self._fail(want, partition, error)
        else:
            self._take(want, partition, data, next_offset)

    def _take(
        self,
        want: FetchPartition,
        partition: Leadership,
        data: bytes | FilePart,
        next_offset: int,
        place: FilePlace | None = None,
    ) -> None:
        size = len(data)
        cost = size if place is None else size // NEAR_RATIO
        if cost > self._left and self._size_bytes:
            data, size, cost, place = b"", 0, 0, None
            self._left = 0
        self._left -= cost
        self._size_bytes += size
        if size:
            self._read.append((partition, size, next_offset - want.offset))
        end = partition.high_watermark
        self._found.append(partition)
        self.fetched.append(
            FetchedPartition(
                want.partition,
                0,
                end,
                end,
                partition.log.start_offset,
                data if place is None else b"",
                self._aborted,
                place=place,
                next_offset=next_offset,
            )
        )

    def _fail(self, want: FetchPartition, partition: Leadership | None, error: MillstreamError) -> None:
        """Add the result of a failed read.

        An offset after the log end does not end the wait: it is an error only if the log does not reach it in time.
        """
        number = error.code.number
        if not isinstance(error, OffsetNotReachedError):
            self._has_error = True
        if partition is None:
            leader = error.leader if isinstance(error, LedElsewhereError) else None
            fetched = FetchedPartition(want.partition, number, current_leader=leader)
        else:
            end = partition.high_watermark
            leader = leader_for(error, self._partitions.image, *partition.key)
            self._found.append(partition)
            fetched = FetchedPartition(
                want.partition, number, end, end, partition.log.start_offset, current_leader=leader
            )
        self.fetched.append(fetched)


def _read_near(partition: Leadership, offset: Offset, max_bytes: int) -> tuple[Stretch | None, FilePlace | None]:
    """Read data for a local reader and find its position in the file. Data without a position keeps the usual limit."""
    found = partition.reader.read(offset, max_bytes=max_bytes, part_bytes=NEAR_RATIO * max_bytes)
    if found is None or isinstance(found[0], Buffer):
        return found, None
    place = found[0].place()
    if place is not None:
        return found, place
    return partition.reader.read(offset, max_bytes=max_bytes), None
