"""Verifies archives: reads every file again, and compares the messages with those that the log still has."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.checksum import crc32c
from millstream.spark.archive.archive_pieces import ArchivePiece, StoredFile, misplaced
from millstream.spark.archive.archive_runs import ArchiveProgress
from millstream.spark.archive.parquet_files import SCHEMA, damaged, read_piece
from millstream.spark.archive.store import located
from millstream.spark.archive.topic_archive import TopicArchive, topics_in
from millstream.spark.connections import client_of
from millstream.spark.options import default_bootstrap
from millstream.spark.reading.planning import Range
from millstream.spark.reading.task_fetch import fetch_records
from millstream.spark.reading.topic_survey import view_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.sdk.sync.client import Client

TASK_BYTES = 64 * 1024 * 1024
TASKS_EACH = 4
"""Tasks per core in one Spark job. Progress is reported after each job."""
_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ArchiveVerdict:
    """The result for one topic's archive. Without differences, the archive matches the log."""

    topic: str
    pieces: int
    rows: int
    compared: int
    """Messages that the log still has and that are equal there. The other files were checked against their checksums
    only.
    """
    lost: int
    """Offsets that expired from the log before they could be archived."""
    behind: int | None
    """Offsets of the log that are not archived yet; None if there is no log to compare with."""
    differences: Sequence[str] = field(default_factory=list)


class ArchivedTopicLog(NamedTuple):
    """The topic that an archive is compared with."""

    bootstrap: str
    topic_id: UUID
    is_compacted: bool


def verify(
    spark: "SparkSession",
    path: str,
    *,
    bootstrap: str | None = None,
    topic: str | None = None,
    on_progress: Callable[[str, ArchiveProgress], None] = lambda topic, progress: None,
) -> list[ArchiveVerdict]:
    """Compares the archives in `path`, or one topic's, with the topics. Archives and topics may be in use meanwhile.

    Every file is read and its checksum compared. Messages that the log still has are compared one by one. A message
    that was compacted away since it was archived is not a difference. Raises RESOURCE_NOT_FOUND if there is no archive.
    `on_progress` is called repeatedly with the numbers of checked and remaining messages of a topic's archive.
    """
    bootstrap = bootstrap or default_bootstrap()
    return [
        _verdict(spark, topic_archive, bootstrap, partial(on_progress, topic_archive.topic))
        for topic_archive in archives_in(path, topic)
    ]


def archives_in(path: str, topic: str | None = None) -> list[TopicArchive]:
    """Returns all archives under a path, or one topic's. Raises RESOURCE_NOT_FOUND if there is none."""
    path = located(path)
    archives = [TopicArchive(path, each) for each in (topics_in(path) if topic is None else [topic])]
    found = [topic_archive for topic_archive in archives if topic_archive.topic_id() is not None]
    if not found:
        text = f"there is no archive in {path}" + (f" of topic {topic!r}" if topic else "")
        raise MillstreamError(ErrorCode.RESOURCE_NOT_FOUND, text)
    return found


def _verdict(
    spark: "SparkSession", topic_archive: TopicArchive, bootstrap: str, tell: Callable[[ArchiveProgress], None]
) -> ArchiveVerdict:
    # Files are listed before the index is read, so that the index names every file seen.
    files = set(topic_archive.store.below(topic_archive.data))
    pieces = topic_archive.pieces()
    log = _log(topic_archive, bootstrap)
    differences = misplaced(pieces)
    known = {file.name for piece in pieces for file in piece.files}
    differences += [f"{topic_archive.data}/{name} is not in the index" for name in sorted(files - known)]
    stored = [piece for piece in pieces if not piece.is_lost]
    behind = None
    if log is not None:
        behind = 0
        ends = {piece.partition: piece.end for piece in pieces}
        for where, end in _log_ends(topic_archive.topic, client_of(bootstrap)).items():
            archived = ends.pop(where.partition, 0)
            behind += max(0, end - archived)
            if archived > end:
                differences.append(f"partition {where.partition}: the archive ends at {archived}, but the log at {end}")
        differences += [f"partition {number}: the topic has no such partition" for number in ends]
    found = _checked(spark, topic_archive, log, stored, tell)
    return ArchiveVerdict(
        topic_archive.topic,
        pieces=len(stored),
        rows=sum(piece.rows for piece in stored),
        compared=sum(each.compared for each in found),
        lost=sum(piece.end - piece.start for piece in pieces if piece.is_lost),
        behind=behind,
        differences=[*differences, *(text for each in found for text in each.differences)],
    )


def _log(topic_archive: TopicArchive, bootstrap: str) -> ArchivedTopicLog | None:
    """Returns the topic to compare with, or None if it was deleted or recreated.

    Without a topic, files are still checked against their checksums.
    """
    client = client_of(bootstrap)
    try:
        view = view_of(client, topic_archive.topic)
    except MillstreamError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None
    if view.topic_id != topic_archive.topic_id():
        return None
    (policy,) = client.admin.describe_settings("topic", topic_archive.topic, ["cleanup.policy"])
    return ArchivedTopicLog(bootstrap, view.topic_id, "compact" in (policy.value or ""))


def _log_ends(topic: str, client: "Client") -> Mapping[TopicPartition, int]:
    places = [TopicPartition(topic, row.number) for row in view_of(client, topic).partitions]
    return {where: found.offset for where, found in client.offsets(dict.fromkeys(places, "latest")).items()}


class Checked(NamedTuple):
    """The result for one piece."""

    compared: int
    differences: Sequence[str]


def _checked(
    spark: "SparkSession",
    topic_archive: TopicArchive,
    log: ArchivedTopicLog | None,
    pieces: Sequence[ArchivePiece],
    tell: Callable[[ArchiveProgress], None],
) -> list[Checked]:
    context = spark.sparkContext
    check = partial(check_piece, topic_archive.path, topic_archive.topic, log)
    found: list[Checked] = []
    done, left = ArchiveProgress(), sum(piece.rows for piece in pieces)
    for some in parted(pieces, TASK_BYTES * TASKS_EACH * context.defaultParallelism):
        tell(replace(done, behind=left))
        size_bytes = sum(piece.size_bytes for piece in some)
        tasks = max(context.defaultParallelism, size_bytes // TASK_BYTES)
        found += context.parallelize(some, min(len(some), tasks)).map(check).collect()
        rows = sum(piece.rows for piece in some)
        done, left = replace(done, rows=done.rows + rows, batches=done.batches + 1), left - rows
    return found


def parted(pieces: Sequence[ArchivePiece], size_bytes: int) -> Iterator[list[ArchivePiece]]:
    """Yields the pieces in order, in groups of about this size."""
    some: list[ArchivePiece] = []
    some_bytes = 0
    for piece in pieces:
        some.append(piece)
        some_bytes += piece.size_bytes
        if some_bytes >= size_bytes:
            yield some
            some, some_bytes = [], 0
    if some:
        yield some


def check_piece(path: str, topic: str, log: ArchivedTopicLog | None, piece: ArchivePiece) -> Checked:
    """Checks one piece, on an executor."""
    topic_archive = TopicArchive(path, topic)
    try:
        for file in piece.files:
            _check_file(topic_archive, file)
        archived = _table(read_piece(topic_archive, piece, piece.start, end=piece.end))
        if archived.num_rows != piece.rows:
            raise MillstreamError(ErrorCode.CORRUPT_MESSAGE, f"{archived.num_rows} messages instead of {piece.rows}")
    except MillstreamError as error:
        return Checked(0, [f"{_range(piece)}: {error.detail}"])
    return Checked(0, []) if log is None else _compared(topic, log, piece, archived)


def _range(piece: ArchivePiece) -> str:
    return f"partition {piece.partition}, offsets {piece.start} to {piece.end - 1}"


def _check_file(topic_archive: TopicArchive, file: StoredFile) -> None:
    checksum = size_bytes = 0
    try:
        with topic_archive.open(file) as source:
            while data := source.read(_CHUNK_BYTES):
                checksum = crc32c(data, checksum)
                size_bytes += len(data)
    except OSError as error:
        raise damaged(topic_archive, file, error) from None
    if (size_bytes, checksum) != (file.size_bytes, file.checksum):
        raise damaged(topic_archive, file, "its size or checksum is not that in the index")


def _table(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches([batch.select(SCHEMA.names) for batch in batches], SCHEMA)


def _compared(topic: str, log: ArchivedTopicLog, piece: ArchivePiece, archived: pa.Table) -> Checked:
    client = client_of(log.bootstrap)
    where = TopicPartition(topic, piece.partition)
    logged = _table(_logged(client, log, where, piece))
    first = client.offsets({where: "beginning"})[where].offset  # Messages that expired meanwhile are no difference.
    archived, logged = (table.filter(pc.field("offset") >= first) for table in (archived, logged))
    if log.is_compacted:
        archived = archived.filter(pc.is_in(archived.column("offset"), logged.column("offset")))
    if archived.equals(logged):
        return Checked(logged.num_rows, [])
    return Checked(0, [f"{_range(piece)}: {_difference(archived, logged)}"])


def _logged(
    client: "Client", log: ArchivedTopicLog, where: TopicPartition, piece: ArchivePiece
) -> Iterator[pa.RecordBatch]:
    first = client.offsets({where: "beginning"})[where].offset
    last = client.offsets({where: "latest"})[where].offset
    start, end = max(piece.start, first), min(piece.end, last)
    if start < end:
        wanted = Range(where.topic, log.topic_id, where.partition, start, end, piece.size_bytes)
        yield from fetch_records(client, where.topic, [wanted], may_fail=False)


def _difference(archived: pa.Table, logged: pa.Table) -> str:
    """Describes the first difference."""
    ours, theirs = ({row["offset"]: row for row in table.to_pylist()} for table in (archived, logged))
    for offset in sorted(ours.keys() | theirs.keys()):
        if offset not in ours:
            return f"offset {offset} is in the log, but not in the archive"
        if offset not in theirs:
            return f"offset {offset} is in the archive, but not in the log"
        for name in SCHEMA.names:
            if ours[offset][name] != theirs[offset][name]:
                return f"offset {offset}: the {name} in the log is different"
    return "the messages have another order in the log"
