"""An archive and its topic as one: what is archived is read from files, the rest from the log.

Positions and plans know offsets alone, so they are the same however far the archive has got: where the seam is, a
task decides when it reads, and a task that is repeated gives the same rows in the same order. Invariant: each
offset of a range is read from one of the two, in order; where it is in neither, the data-loss policy has the word.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
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
    """What the driver knows: topics reach back as far as their archives do."""

    def __init__(self, client: "Client", options: SourceOptions) -> None:
        super().__init__(client, options)
        self._path = options.archive or ""
        self._checked: dict[str, UUID] = {}
        """Ids of topics whose archives are theirs."""

    def find(self, known: "Iterable[str]" = ()) -> SurveyedTopics:
        """RESOURCE_NOT_FOUND where a topic that was named has no archive; UNKNOWN_TOPIC_ID where it is another's."""
        found = super().find(known)
        for topic, topic_id in found.ids.items():
            if self._checked.get(topic) != topic_id:
                shelf = TopicArchive(self._path, topic)
                archived_id = shelf.topic_id()
                if archived_id is not None:
                    shelf.check_topic(archived_id, topic_id)
                    self._checked[topic] = topic_id
                elif topic in self._options.topics:
                    text = f"option archive={self._path!r}: there is no archive of topic {topic!r}"
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
        self, said: PartitionBounds, extents: Mapping[TopicPartition, ReadableRange], default: OffsetBound
    ) -> dict[TopicPartition, int]:
        """A time is first looked for in the archive."""
        found = super().offsets(said, extents, default)
        for where in extents:
            place = said.of(where, default)
            if place.kind is BoundKind.TIME:
                found[where] = min(found[where], self._first_at(where, place.number, found[where]))
        return found

    def _first_at(self, where: TopicPartition, time_ms: int, before: int) -> int:
        """The first archived offset before this one whose message is as late; this one, where there is none."""
        shelf = TopicArchive(self._path, where.topic)
        piece = shelf.first_at(where.partition, time_ms, before)
        if piece is not None:
            for batch in read_piece(shelf, piece, piece.start, before, ["timestamp"]):
                late = batch.filter(pc.greater_equal(batch.column("timestamp").cast(pa.int64()), time_ms))
                if late.num_rows:
                    offset: int = late.column("offset")[0].as_py()
                    return offset
        return before

    def bytes_each(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, float]:
        """Where the log has nothing any more, the archive knows."""
        found = super().bytes_each(places)
        for where, extent in self._archived(places).items():
            found[where] = max(found[where], extent.size_bytes / max(1, extent.rows))
        return found


def _reach(log: ReadableRange, archived: ArchivedRange) -> ReadableRange:
    intervals = [*archived.archived, (log.first, log.next)]
    return ReadableRange(min(start for start, _ in intervals), log.next, tuple(holes(intervals)))


# On executors.


def read_history(
    client: "Client", topic: str, ranges: Sequence[Range], options: SourceOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The messages of these ranges of a topic, in order within each partition, of the archive only these columns.

    OFFSET_OUT_OF_RANGE, under dataLoss=fail, for what is in neither.
    """
    shelf = TopicArchive(options.archive or "", topic)
    archived = shelf.extents()
    live = [each for each in ranges if not _touches(archived.get(each.partition), each)]
    if len(live) > 1:  # Small ones: the tail of many partitions is fetched together.
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
            yield from _read_range(client, shelf, each, options.data_loss, names)


def _touches(archived: ArchivedRange | None, wanted: Range) -> bool:
    return archived is not None and any(start < wanted.end and end > wanted.start for start, end in archived.archived)


def _read_range(
    client: "Client", shelf: TopicArchive, wanted: Range, policy: DataLoss, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """What is archived is looked up once, and again where the log turns out to have lost what was to come from it."""
    position = wanted.start
    while position < wanted.end:
        try:
            for part, piece in _parts(wanted._replace(start=position), _stored(shelf, wanted, position)):
                if piece is not None:
                    yield from read_piece(shelf, piece, part.start, part.end, names)
                else:
                    for batch in fetch_records(client, shelf.topic, [part], may_fail=True):
                        yield batch
                        position = batch.column("offset")[batch.num_rows - 1].as_py() + 1
                position = part.end
        except MillstreamError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            position = _behind_gone(client, shelf, wanted, position, policy)


def _parts(wanted: Range, pieces: Sequence[ArchivePiece]) -> Iterator[tuple[Range, ArchivePiece | None]]:
    """A range in order, by what is archived of it and what is to come from the log (None)."""
    position = wanted.start
    for piece in pieces:
        if position < piece.start:
            yield wanted._replace(start=position, end=piece.start), None
        start, position = max(piece.start, position), min(piece.end, wanted.end)
        yield wanted._replace(start=start, end=position), piece
    if position < wanted.end:
        yield wanted._replace(start=position), None


def _stored(shelf: TopicArchive, wanted: Range, position: int) -> list[ArchivePiece]:
    return [piece for piece in shelf.pieces(wanted.partition, position, wanted.end) if not piece.is_lost]


def _behind_gone(client: "Client", shelf: TopicArchive, wanted: Range, position: int, policy: DataLoss) -> int:
    """Where to go on when the log has no longer what begins here: it may have been archived since it was looked."""
    stored = _stored(shelf, wanted, position)
    if stored and stored[0].start <= position:
        return position
    where, end = wanted.where, stored[0].start if stored else wanted.end
    first = client.offsets({where: "beginning"})[where].offset
    if first <= position:
        text = (
            f"{where}: offset {position} was to be read, but the log has lost it with its end, and it is not archived"
        )
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
    text = f"{where}: offsets {position} to {min(first, end) - 1} are neither in the archive nor in the log"
    if policy is DataLoss.FAIL:
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
    _log.warning("%s: going on (dataLoss=%s)", text, policy.value)
    return min(first, end)
