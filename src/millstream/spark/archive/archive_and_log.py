"""Reads an archive and its topic as one: archived messages from files, the others from the log.

Positions and plans contain only offsets, so they do not depend on how far the archive has got. Each task decides when
it reads which offsets come from files, and a repeated task yields the same rows in the same order. Guarantee: each
offset of a range is read from exactly one of the two, in order. The data-loss policy decides about offsets that are in
neither.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.process.log_event import LogEvent
from millstream.spark.archive.archive_pieces import ArchivePiece
from millstream.spark.archive.index_segments import ArchivedRange
from millstream.spark.archive.parquet_files import read_piece
from millstream.spark.archive.topic_archive import TopicArchive
from millstream.spark.options import DataLoss, SourceOptions
from millstream.spark.reading.offset_bounds import BoundKind, OffsetBound, PartitionBounds
from millstream.spark.reading.planning import Range
from millstream.spark.reading.reachable_ranges import ReadableRange, holes
from millstream.spark.reading.task_fetch import fetch_records
from millstream.spark.reading.topic_survey import SurveyedTopics, TopicSurvey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.sdk.sync.client import Client

_log = logging.getLogger("millstream.spark")


class LongSurvey(TopicSurvey):
    """Finds topics and their offset ranges, including the archived messages."""

    def __init__(self, client: "Client", options: SourceOptions) -> None:
        super().__init__(client, options)
        self._path = options.archive or ""
        self._checked: dict[str, UUID] = {}
        """Topic ids by name, for topics whose archive has the same id."""

    def find(self, known: "Iterable[str]" = ()) -> SurveyedTopics:
        """Returns the topics, and checks their archives.

        Raises RESOURCE_NOT_FOUND if a topic named in the options has no archive; UNKNOWN_TOPIC_ID if the archive
        belongs to another topic of the same name.
        """
        found = super().find(known)
        for topic, topic_id in found.ids.items():
            if self._checked.get(topic) != topic_id:
                topic_archive = TopicArchive(self._path, topic)
                archived_id = topic_archive.topic_id()
                if archived_id is not None:
                    topic_archive.check_topic(archived_id, topic_id)
                    self._checked[topic] = topic_id
                elif topic in self._options.topics:
                    text = f"option archive={self._path!r}: there is no archive of topic {topic!r} in this directory"
                    raise MillstreamError(ErrorCode.RESOURCE_NOT_FOUND, text)
        return found

    def extents(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, ReadableRange]:
        found = super().extents(places)
        archived = self._archived(places)
        return {where: _reach(log, archived[where]) if where in archived else log for where, log in found.items()}

    def _archived(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, ArchivedRange]:
        extents = {topic: TopicArchive(self._path, topic).extents() for topic in {where.topic for where in places}}
        return {
            where: extents[where.topic][where.partition] for where in places if where.partition in extents[where.topic]
        }

    def offsets(
        self, bounds: PartitionBounds, extents: Mapping[TopicPartition, ReadableRange], default: OffsetBound
    ) -> dict[TopicPartition, int]:
        """Resolves bounds to offsets. Times are looked up in the archive first."""
        found = super().offsets(bounds, extents, default)
        for where in extents:
            place = bounds.of(where, default)
            if place.kind is BoundKind.TIME:
                found[where] = min(found[where], self._first_at(where, place.number, before=found[where]))
        return found

    def _first_at(self, where: TopicPartition, time_ms: int, *, before: int) -> int:
        """Returns the first archived offset below `before` whose message is at or after the time; `before` if there is
        none.
        """
        topic_archive = TopicArchive(self._path, where.topic)
        piece = topic_archive.first_at(where.partition, time_ms=time_ms, before=before)
        if piece is not None:
            for batch in read_piece(topic_archive, piece, piece.start, end=before, names=["timestamp"]):
                late = batch.filter(pc.greater_equal(batch.column("timestamp").cast(pa.int64()), time_ms))
                if late.num_rows:
                    offset: int = late.column("offset")[0].as_py()
                    return offset
        return before

    def bytes_each(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, float]:
        """Returns the estimated bytes per offset: the larger of the log's and the archive's estimate."""
        found = super().bytes_each(places)
        for where, extent in self._archived(places).items():
            found[where] = max(found[where], extent.size_bytes / max(1, extent.rows))
        return found


def _reach(log: ReadableRange, archived: ArchivedRange) -> ReadableRange:
    intervals = [*archived.archived, (log.first, log.next)]
    return ReadableRange(min(start for start, _ in intervals), log.next, tuple(holes(intervals)))


# Reading on the executors.


def read_history(
    client: "Client", topic: str, ranges: Sequence[Range], options: SourceOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the messages of `ranges`, in offset order within each partition.

    From the archive, it reads only the columns in `names`.

    Raises OFFSET_OUT_OF_RANGE, under dataLoss=fail, for offsets that are in neither archive nor log.
    """
    topic_archive = TopicArchive(options.archive or "", topic)
    archived = topic_archive.extents()
    live = [each for each in ranges if not _touches(archived.get(each.partition), each)]
    if len(live) > 1:  # Several ranges are small ones: fetch the tails of many partitions together.
        try:
            yield from list(fetch_records(client, topic, live, may_fail=True))
        except MillstreamError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            live = []
    else:
        live = []
    for each in ranges:
        if each not in live:
            yield from _read_range(client, topic_archive, each, options.data_loss, names)


def _touches(archived: ArchivedRange | None, wanted: Range) -> bool:
    return archived is not None and any(start < wanted.end and end > wanted.start for start, end in archived.archived)


def _read_range(
    client: "Client", topic_archive: TopicArchive, wanted: Range, policy: DataLoss, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the messages of one range.

    The archive's index is read once. It is read again if the log has meanwhile deleted messages of the range.
    """
    position = wanted.start
    while position < wanted.end:
        try:
            for part, piece in _parts(wanted._replace(start=position), _stored(topic_archive, wanted, position)):
                assert part.start == position, "each offset comes from one source, in order"
                if piece is not None:
                    yield from read_piece(topic_archive, piece, part.start, end=part.end, names=names)
                else:
                    for batch in fetch_records(client, topic_archive.topic, [part], may_fail=True):
                        yield batch
                        position = batch.column("offset")[batch.num_rows - 1].as_py() + 1
                position = part.end
        except MillstreamError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            position = _after_missing(client, topic_archive, wanted, position, policy)


def _parts(wanted: Range, pieces: Sequence[ArchivePiece]) -> Iterator[tuple[Range, ArchivePiece | None]]:
    """Divides a range into parts, in order: each with its piece, or with None if the part is read from the log."""
    position = wanted.start
    for piece in pieces:
        if position < piece.start:
            yield wanted._replace(start=position, end=piece.start), None
        start, position = max(piece.start, position), min(piece.end, wanted.end)
        yield wanted._replace(start=start, end=position), piece
    if position < wanted.end:
        yield wanted._replace(start=position), None


def _stored(topic_archive: TopicArchive, wanted: Range, position: int) -> list[ArchivePiece]:
    """Returns the pieces that hold offsets of the range from `position` on, without those marked as lost."""
    return [
        piece for piece in topic_archive.pieces(wanted.partition, start=position, end=wanted.end) if not piece.is_lost
    ]


def _after_missing(
    client: "Client", topic_archive: TopicArchive, wanted: Range, position: int, policy: DataLoss
) -> int:
    """Returns where to continue if the log no longer has `position`; it may have been archived since the last look."""
    stored = _stored(topic_archive, wanted, position)
    if stored and stored[0].start <= position:
        return position
    where, end = wanted.where, stored[0].start if stored else wanted.end
    first = client.offsets({where: "beginning"})[where].offset
    if first <= position:
        text = f"{where}: offset {position} no longer exists: it is not archived, and the log was truncated before it"
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
    found = min(first, end)
    if policy is DataLoss.FAIL:
        text = f"{where}: offsets {position} to {found - 1} are neither in the archive nor in the log"
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
    fields = {**where._asdict(), "first_offset": position, "end_offset": found, "data_loss": policy.value}
    _log.warning(LogEvent("offsets lost", **fields))
    return found
