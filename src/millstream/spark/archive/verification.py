"""Whether an archive is whole, and has what the log has: each piece is read again and held against the topic."""

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
"""So many for each core are one job of Spark, after which there is progress to tell."""
_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ArchiveVerdict:
    """On one topic's archive. Without differences, it is what the log was."""

    topic: str
    pieces: int
    rows: int
    compared: int
    """Messages that the log still has, and that are the same there; of the others, files are as they were written."""
    lost: int
    """Offsets that had gone from the log before they could be archived."""
    behind: int | None
    """Messages of the log that are not archived yet; None where there is no log to compare with."""
    differences: Sequence[str] = field(default_factory=list)


class ArchivedTopicLog(NamedTuple):
    """The topic that an archive is held against."""

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
    """Compare the archives in `path`, or one topic's, with the topics, which may be in use meanwhile.

    Every file is read and its checksum compared; what the log still has is compared message by message. A message that
    was compacted away since it was archived is no difference. RESOURCE_NOT_FOUND where there is no archive.
    `on_progress` is told again and again how many messages of a topic's archive were checked, and how many wait.
    """
    bootstrap = bootstrap or default_bootstrap()
    return [_verdict(spark, shelf, bootstrap, partial(on_progress, shelf.topic)) for shelf in archives_in(path, topic)]


def archives_in(path: str, topic: str | None = None) -> list[TopicArchive]:
    """All, or one topic's. RESOURCE_NOT_FOUND where there is none."""
    path = located(path)
    shelves = [TopicArchive(path, each) for each in (topics_in(path) if topic is None else [topic])]
    found = [shelf for shelf in shelves if shelf.topic_id() is not None]
    if not found:
        text = f"there is no archive in {path}" + (f" of topic {topic!r}" if topic else "")
        raise MillstreamError(ErrorCode.RESOURCE_NOT_FOUND, text)
    return found


def _verdict(
    spark: "SparkSession", shelf: TopicArchive, bootstrap: str, tell: Callable[[ArchiveProgress], None]
) -> ArchiveVerdict:
    files = set(shelf.store.below(shelf.data))  # Before the index: what is archived meanwhile is no surprise then.
    pieces = shelf.pieces()
    log = _log(shelf, bootstrap)
    differences = misplaced(pieces)
    known = {file.name for piece in pieces for file in piece.files}
    differences += [f"{shelf.data}/{name} is in no commit" for name in sorted(files - known)]
    stored = [piece for piece in pieces if not piece.is_lost]
    behind = None
    if log is not None:
        behind = 0
        ends = {piece.partition: piece.end for piece in pieces}
        for where, end in _log_ends(shelf.topic, client_of(bootstrap)).items():
            archived = ends.pop(where.partition, 0)
            behind += max(0, end - archived)
            if archived > end:
                differences.append(f"partition {where.partition}: the archive ends at {archived}, the log at {end}")
        differences += [f"partition {number}: the topic has no such partition" for number in ends]
    found = _checked(spark, shelf, log, stored, tell)
    return ArchiveVerdict(
        shelf.topic,
        pieces=len(stored),
        rows=sum(piece.rows for piece in stored),
        compared=sum(each.compared for each in found),
        lost=sum(piece.end - piece.start for piece in pieces if piece.is_lost),
        behind=behind,
        differences=[*differences, *(text for each in found for text in each.differences)],
    )


def _log(shelf: TopicArchive, bootstrap: str) -> ArchivedTopicLog | None:
    """None where the topic is gone, or another one by now: files can still be checked by themselves."""
    client = client_of(bootstrap)
    try:
        view = view_of(client, shelf.topic)
    except MillstreamError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None
    if view.topic_id != shelf.topic_id():
        return None
    (policy,) = client.admin.describe_settings("topic", shelf.topic, ["cleanup.policy"])
    return ArchivedTopicLog(bootstrap, view.topic_id, "compact" in (policy.value or ""))


def _log_ends(topic: str, client: "Client") -> Mapping[TopicPartition, int]:
    places = [TopicPartition(topic, row.number) for row in view_of(client, topic).partitions]
    return {where: found.offset for where, found in client.offsets(dict.fromkeys(places, "latest")).items()}


class Checked(NamedTuple):
    compared: int
    differences: Sequence[str]


def _checked(
    spark: "SparkSession",
    shelf: TopicArchive,
    log: ArchivedTopicLog | None,
    pieces: Sequence[ArchivePiece],
    tell: Callable[[ArchiveProgress], None],
) -> list[Checked]:
    context = spark.sparkContext
    check = partial(check_piece, shelf.path, shelf.topic, log)
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
    """All of them, in order, in parts of about this size."""
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
    """On an executor."""
    shelf = TopicArchive(path, topic)
    try:
        for file in piece.files:
            _check_file(shelf, file)
        archived = _table(read_piece(shelf, piece, piece.start, piece.end))
        if archived.num_rows != piece.rows:
            raise MillstreamError(ErrorCode.CORRUPT_MESSAGE, f"{archived.num_rows} messages instead of {piece.rows}")
    except MillstreamError as error:
        return Checked(0, [f"{_range(piece)}: {error.detail}"])
    return Checked(0, []) if log is None else _compared(topic, log, piece, archived)


def _range(piece: ArchivePiece) -> str:
    return f"partition {piece.partition}, offsets {piece.start} to {piece.end - 1}"


def _check_file(shelf: TopicArchive, file: StoredFile) -> None:
    checksum = size_bytes = 0
    try:
        with shelf.open(file) as source:
            while data := source.read(_CHUNK_BYTES):
                checksum = crc32c(data, checksum)
                size_bytes += len(data)
    except OSError as error:
        raise damaged(shelf, file, error) from None
    if (size_bytes, checksum) != (file.size_bytes, file.checksum):
        raise damaged(shelf, file, "its bytes are not those that were written")


def _table(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches([batch.select(SCHEMA.names) for batch in batches], SCHEMA)


def _compared(topic: str, log: ArchivedTopicLog, piece: ArchivePiece, archived: pa.Table) -> Checked:
    client = client_of(log.bootstrap)
    where = TopicPartition(topic, piece.partition)
    logged = _table(_logged(client, log, where, piece))
    first = client.offsets({where: "beginning"})[where].offset  # What expires meanwhile is not held against anybody.
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
    """The first, in words."""
    ours, theirs = ({row["offset"]: row for row in table.to_pylist()} for table in (archived, logged))
    for offset in sorted(ours.keys() | theirs.keys()):
        if offset not in ours:
            return f"offset {offset} is in the log, but not in the archive"
        if offset not in theirs:
            return f"offset {offset} is in the archive, but not in the log"
        for name in SCHEMA.names:
            if ours[offset][name] != theirs[offset][name]:
                return f"offset {offset} has another {name} in the log"
    return "the order of messages is another one in the log"
