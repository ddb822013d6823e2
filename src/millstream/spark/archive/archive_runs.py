"""Updates a topic's archive, once or continuously."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.start_words import BEGINNING, start_word
from millstream.spark.archive.archive_pieces import ArchivePiece, from_json
from millstream.spark.archive.store import located
from millstream.spark.archive.topic_archive import ArchiveWriter, TopicArchive, kept
from millstream.spark.connections import client_of
from millstream.spark.options import DataLoss, default_bootstrap, invalid
from millstream.spark.pipelines.failures import told
from millstream.spark.reading.topic_survey import view_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY_S = 60.0
GRACE_S = 30.0
BATCH_BYTES = 4 * 1024 * 1024 * 1024
"""Approximate size of the log range in one batch. A crash makes the next start repeat at most one batch."""
_TICK_S = 1


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """Counts of what was archived since the call."""

    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    batches: int = 0
    lost: int = 0
    """Offsets that expired from the log before they could be archived."""
    behind: int = 0
    """Offsets of the log that are not archived yet."""


def archive(
    spark: "SparkSession",
    topic: str,
    to: str,
    *,
    bootstrap: str | None = None,
    once: bool = False,
    every: float = EVERY_S,
    data_loss: str = "fail",
    checkpoint: str | None = None,
    batch_bytes: int = BATCH_BYTES,
    on_progress: Callable[[ArchiveProgress], None] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
    grace: float = GRACE_S,
) -> ArchiveProgress:
    """Stores a topic's messages as Parquet files under `to`, each message once, from where its archive ends.

    `to` is a directory or a URI (s3://, gs://, hdfs://) that all of Spark's workers can access. With `once`, the
    function returns when it has archived everything up to the end of the log at the start. Otherwise it continues with
    new messages, one batch every `every` seconds, until `is_stopped` returns True; the running batch then has `grace`
    seconds to finish. If messages expired before they were archived, it raises OFFSET_OUT_OF_RANGE. With
    `data_loss="earliest"` it continues with the messages that still exist, and the archive records the gap.

    If the process is killed, the next call continues where the archive ends: a batch is archived completely or not at
    all. `checkpoint` is the directory of Spark's checkpoint, by default beside the archive; the archive survives its
    loss.

    Raises UNKNOWN_TOPIC_OR_PARTITION if the topic does not exist; UNKNOWN_TOPIC_ID if the archive belongs to an older
    topic with this name; DATA_DIRECTORY_IN_USE while another process writes the archive.
    """
    data_loss = DataLoss.EARLIEST if start_word(data_loss) == BEGINNING else data_loss
    if data_loss not in (DataLoss.FAIL, DataLoss.EARLIEST):
        raise invalid("data_loss", data_loss, "expected fail or earliest")
    bootstrap = bootstrap or default_bootstrap()
    topic_archive = begun(topic, to, bootstrap)
    with kept(topic_archive) as archive_writer:
        archive_writer.recover()
        options = {
            "bootstrap": bootstrap,
            "topic": topic,
            "archive": topic_archive.path,
            "dataLoss": data_loss,
            "maxBytesPerTrigger": str(batch_bytes),
        }
        run = _Run(spark, archive_writer, topic_archive, options, checkpoint or _checkpoint(topic_archive), on_progress)
        try:
            run.tell()
            run.go({"availableNow": True}, is_stopped, grace)  # Up to now without pauses, then in intervals.
            if not once and not is_stopped():
                run.go({"processingTime": f"{every} seconds"}, is_stopped, grace)
        finally:
            archive_writer.close()
        return run.progress


def begun(topic: str, to: str, bootstrap: str) -> TopicArchive:
    """Returns the topic's archive, and creates it if it does not exist. Needs no Spark, so it reports errors early."""
    try:
        topic_archive = TopicArchive(located(to), topic)
        topic_archive.begin(view_of(client_of(bootstrap), topic).topic_id)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"cannot create an archive in {to}: {why}") from None
    return topic_archive


def _checkpoint(topic_archive: TopicArchive) -> str:
    if topic_archive.store.is_local:
        return topic_archive.checkpoint
    if topic_archive.path.startswith("hdfs://"):
        return f"{topic_archive.path.rstrip('/')}/{topic_archive.home}/checkpoint"
    text = f"checkpoint: there is no default for {topic_archive.path}, which Spark may not have access to; set one"
    raise MillstreamError(ErrorCode.INVALID_SETTING, text)


class _Run:
    """One call of `archive`: runs the query and commits its batches."""

    def __init__(
        self,
        spark: "SparkSession",
        archive_writer: ArchiveWriter,
        topic_archive: TopicArchive,
        options: dict[str, str],
        checkpoint: str,
        on_progress: Callable[[ArchiveProgress], None] | None,
    ) -> None:
        from millstream.spark.archive.source import ArchivingSource

        spark.dataSource.register(ArchivingSource)
        self._spark = spark
        self._archive_writer = archive_writer
        self._topic_archive = topic_archive
        self._options = options
        self._checkpoint = checkpoint
        self._on_progress = on_progress
        self._failure: BaseException | None = None
        self._batch_lock = threading.Lock()
        """Held while a batch is archived."""
        self._is_ending = False
        self.progress = ArchiveProgress()

    def go(self, trigger: dict[str, Any], is_stopped: Callable[[], bool], grace_s: float) -> None:
        """Runs the query until it ends or is stopped.

        A batch that exceeds the grace period is cancelled and repeated later.
        """
        frame = self._spark.readStream.format("millstream_archiving").options(**self._options).load()
        writer = frame.writeStream.foreachBatch(self._store).option("checkpointLocation", self._checkpoint)
        query = writer.queryName(f"archive of {self._topic_archive.topic}").trigger(**trigger).start()
        try:
            while not query.awaitTermination(_TICK_S):
                if is_stopped():
                    self._await_batch(grace_s)
                    break
        except Exception as error:
            where = f"archive of {self._topic_archive.topic} in {self._topic_archive.path}"
            raise self._failure or told(str(error), where, Path("/")) from None
        finally:
            query.stop()

    def _await_batch(self, grace_s: float) -> None:
        if self._batch_lock.acquire(timeout=grace_s):
            self._is_ending = True
            self._batch_lock.release()

    def _store(self, frame: "DataFrame", number: int) -> None:
        with self._batch_lock:
            if self._is_ending:
                raise InterruptedError("the archive is being stopped; its next start repeats this batch")
            stored = [from_json(row.piece) for row in frame.collect()]
            may_lack = self._options["dataLoss"] != DataLoss.FAIL
            try:
                self.tell(self._archive_writer.commit(stored, may_lack=may_lack))
            except (MillstreamError, OSError) as error:
                self._failure = error
                raise

    def tell(self, new: Sequence[ArchivePiece] = ()) -> None:
        """Adds these new pieces to the progress and reports it.

        It is also called before the first batch, which may take long.
        """
        before = self.progress
        self.progress = ArchiveProgress(
            rows=before.rows + sum(piece.rows for piece in new),
            files=before.files + sum(len(piece.files) for piece in new),
            size_bytes=before.size_bytes + sum(piece.size_bytes for piece in new),
            batches=before.batches + bool(new),
            lost=before.lost + sum(piece.end - piece.start for piece in new if piece.is_lost),
            behind=before.behind,
        )
        try:
            self.progress = replace(self.progress, behind=self._behind())
        except MillstreamError:
            pass  # The batch is archived, even if the brokers cannot report the backlog now.
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _behind(self) -> int:
        """Returns how many offsets of the log are not archived yet."""
        client, topic = client_of(self._options["bootstrap"]), self._topic_archive.topic
        places = [TopicPartition(topic, row.number) for row in view_of(client, topic).partitions]
        firsts = client.offsets(dict.fromkeys(places, "beginning"))
        lasts = client.offsets(dict.fromkeys(places, "latest"))
        reached = {where: self._archive_writer.ends.get(where.partition, firsts[where].offset) for where in places}
        return sum(max(0, lasts[where].offset - reached[where]) for where in places)
