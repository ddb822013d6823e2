"""One pass over the partitions that a reader wants: what each of them has, within the answer's bounds.

The pass goes on in slices: it stops after `SLICE` partitions, so that others get their turn, and at a partition whose
data is not in the page cache, so that a worker can read it. Whoever runs it decides how to wait.

Bounds: an answer holds no more than its limit, except that its very first batch always fits, however large it is. What
a reader of the same machine is only told the place of counts for a part of its size.
"""

from collections.abc import Sequence

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.partition import Partition
from millstream.seams.file_part import FilePart, FilePlace
from millstream.storage.log.log_reader import Stretch
from millstream.wire.fetch import NOT_KNOWN, FetchedPartition, FetchPartition
from millstream.wire.framing import Buffer
from millstream.wire.topic_ref import TopicRef

SLICE = 1_000
NEAR_RATIO = 16
"""So much more than it asks for a reader is told the place of, since it costs next to nothing."""

Want = tuple[TopicRef, FetchPartition]


class FetchPass:
    def __init__(
        self, partitions: PartitionLookup, wants: Sequence[Want], max_bytes: int, *, committed: bool, near: bool = False
    ) -> None:
        """`near` is a reader that is only told where parts of files lie."""
        self.wants = wants
        self.fetched: list[tuple[TopicRef, FetchedPartition]] = []
        self.size_bytes = 0
        self.has_error = False
        self.is_beyond_end = False
        """Some reader is ahead of its log: an error, unless the log reaches it in time."""
        self._partitions = partitions
        self._left = max_bytes
        self._near = near
        self._aborted: tuple[tuple[int, int], ...] | None = () if committed else None
        self._cold: tuple[TopicRef, FetchPartition, Partition] | None = None

    @property
    def is_finished(self) -> bool:
        return len(self.fetched) == len(self.wants)

    @property
    def is_hungry(self) -> bool:
        """Whether there is something, and there was no memory for any of it."""
        if self._left > 0 or self.size_bytes:
            return False
        return any(
            want.offset < fetched.high_watermark
            for (_, want), (_, fetched) in zip(self.wants, self.fetched, strict=True)
        )

    def run(self) -> None:
        """Go on for one slice, or up to a partition that must be read from disk."""
        start = len(self.fetched)
        for topic, want in self.wants[start : start + SLICE]:
            if not self._read(topic, want):
                return

    async def run_cold(self) -> None:
        """Read the partition at which `run` stopped, waiting for the disk."""
        if self._cold is None:
            return
        (topic, want, partition), self._cold = self._cold, None
        try:
            data = await partition.read_cold(want.offset, min(want.max_bytes, self._left))
        except MillstreamError as error:
            self._fail(topic, want, partition, error)
            return
        self._take(topic, want, partition, data, NOT_KNOWN)

    def _read(self, topic: TopicRef, want: FetchPartition) -> bool:
        partition = None
        try:
            partition = find_partition(self._partitions, topic, want.partition)
            partition.check_leader_epoch(want.leader_epoch)
            # With the answer full, only the partition's state is told.
            limit = min(want.max_bytes, self._left)
            if self._left > 0:
                found, place = self._lent(partition, want.offset, limit)
            else:
                found, place = _nothing(partition, want.offset), None
        except MillstreamError as error:
            self._fail(topic, want, partition, error)
            return True
        if found is None:
            self._cold = topic, want, partition
            return False
        self._take(topic, want, partition, *found, place)
        return True

    def _lent(self, partition: Partition, offset: int, limit: int) -> tuple[Stretch | None, FilePlace | None]:
        """What there is, and its place for a reader that is near; what has none is no more than others are sent."""
        if self._near:
            found = partition.read(offset, limit, NEAR_RATIO * limit)
            if found is None or isinstance(found[0], Buffer):
                return found, None
            place = found[0].place()
            if place is not None:
                return found, place
        return partition.read(offset, limit), None

    def _take(
        self,
        topic: TopicRef,
        want: FetchPartition,
        partition: Partition,
        data: bytes | FilePart,
        next_offset: int,
        place: FilePlace | None = None,
    ) -> None:
        cost = len(data) if place is None else len(data) // NEAR_RATIO
        if cost > self._left and self.size_bytes:
            data, cost, place = b"", 0, None
            self._left = 0
        self._left -= cost
        self.size_bytes += len(data)
        end = partition.high_watermark
        start = partition.log.start_offset
        fetched = FetchedPartition(
            want.partition, 0, end, end, start, data, self._aborted, place=place, next_offset=next_offset
        )
        self.fetched.append((topic, fetched))

    def _fail(self, topic: TopicRef, want: FetchPartition, partition: Partition | None, error: MillstreamError) -> None:
        if partition is None:
            fetched = FetchedPartition(want.partition, error.code.number)
        else:
            end, start = partition.high_watermark, partition.log.start_offset
            fetched = FetchedPartition(want.partition, error.code.number, end, end, start)
        if (
            error.code is ErrorCode.OFFSET_OUT_OF_RANGE
            and partition is not None
            and want.offset > partition.log.end_offset
        ):
            self.is_beyond_end = True
        else:
            self.has_error = True
        self.fetched.append((topic, fetched))


def _nothing(partition: Partition, offset: int) -> Stretch | None:
    """What a partition has for a full answer: no data, but an offset out of its range is still an error."""
    if partition.log.start_offset <= offset <= partition.high_watermark:
        return b"", offset
    return partition.read(offset, 1)
