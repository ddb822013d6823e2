"""A topic's archive, brought up to date once or for as long as it is wanted."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
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
"""About so much of the log is one batch: what a crash makes to be done again, at most."""
_TICK_S = 1


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """What was archived since the call, and how many messages wait."""

    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    batches: int = 0
    lost: int = 0
    """Offsets that had gone from the log before they could be archived."""
    behind: int = 0


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
    """Store a topic's messages as Parquet files under `to`, from where its archive ends; each message once.

    `to` is a directory or a URI (s3://, gs://, hdfs://) that all of Spark's workers have. With `once` it ends when what
    was there at the beginning is archived; otherwise it goes on with what comes, in a batch every so many seconds,
    until `is_stopped` says so; the batch that runs then has `grace` seconds to end. Where messages expired before they
    were archived, it fails with OFFSET_OUT_OF_RANGE; with `data_loss="earliest"` it goes on with those that are there,
    and the archive remembers the hole.

    Killed at any time, it goes on by the next call as if nothing had been: a batch is part of the archive whole or not
    at all. `checkpoint` is where Spark keeps how far it is, beside the archive unless said otherwise; an archive does
    without one that is lost. UNKNOWN_TOPIC_OR_PARTITION without such a topic; UNKNOWN_TOPIC_ID where the archive is
    that of an older one with this name; DATA_DIRECTORY_IN_USE while another process writes it.
    """
    if data_loss not in (DataLoss.FAIL, DataLoss.EARLIEST):
        raise invalid("data_loss", data_loss, "expected fail or earliest")
    bootstrap = bootstrap or default_bootstrap()
    shelf = begun(topic, to, bootstrap)
    with kept(shelf) as keeper:
        keeper.recover()
        options = {
            "bootstrap": bootstrap,
            "topic": topic,
            "archive": shelf.path,
            "dataLoss": data_loss,
            "maxBytesPerTrigger": str(batch_bytes),
        }
        run = _Run(spark, keeper, shelf, options, checkpoint or _checkpoint(shelf), on_progress)
        try:
            run.tell()
            run.go({"availableNow": True}, is_stopped, grace)  # As quickly as it can, up to now; then at leisure.
            if not once and not is_stopped():
                run.go({"processingTime": f"{every} seconds"}, is_stopped, grace)
        finally:
            keeper.close()
        return run.progress


def begun(topic: str, to: str, bootstrap: str) -> TopicArchive:
    """The topic's archive there, which is made if need be: needs no Spark, and says what else would fail."""
    try:
        shelf = TopicArchive(located(to), topic)
        shelf.begin(view_of(client_of(bootstrap), topic).topic_id)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"an archive cannot be made in {to}: {why}") from None
    return shelf


def _checkpoint(shelf: TopicArchive) -> str:
    if shelf.store.is_local:
        return shelf.checkpoint
    if shelf.path.startswith("hdfs://"):
        return f"{shelf.path.rstrip('/')}/{shelf.home}/checkpoint"
    text = f"say where Spark keeps how far it is (checkpoint): it may have no access to {shelf.path} of its own"
    raise MillstreamError(ErrorCode.INVALID_SETTING, text)


class _Run:
    def __init__(
        self,
        spark: "SparkSession",
        keeper: ArchiveWriter,
        shelf: TopicArchive,
        options: dict[str, str],
        checkpoint: str,
        on_progress: Callable[[ArchiveProgress], None] | None,
    ) -> None:
        from millstream.spark.archive.source import ArchivingSource

        spark.dataSource.register(ArchivingSource)
        self._spark = spark
        self._keeper = keeper
        self._shelf = shelf
        self._options = options
        self._checkpoint = checkpoint
        self._on_progress = on_progress
        self._failure: BaseException | None = None
        self._working = threading.Lock()
        """Held while a batch is archived."""
        self._is_ending = False
        self.progress = ArchiveProgress()

    def go(self, trigger: dict[str, Any], is_stopped: Callable[[], bool], grace_s: float) -> None:
        """Until the query ends, or is stopped: a batch that does not end in time is given up, and done again later."""
        frame = self._spark.readStream.format("millstream_archiving").options(**self._options).load()
        writer = frame.writeStream.foreachBatch(self._store).option("checkpointLocation", self._checkpoint)
        query = writer.queryName(f"archive of {self._shelf.topic}").trigger(**trigger).start()
        try:
            while not query.awaitTermination(_TICK_S):
                if is_stopped():
                    self._await_batch(grace_s)
                    break
        except Exception as error:
            where = f"archive of {self._shelf.topic} in {self._shelf.path}"
            raise self._failure or told(str(error), where, Path("/")) from None
        finally:
            query.stop()

    def _await_batch(self, grace_s: float) -> None:
        if self._working.acquire(timeout=grace_s):
            self._is_ending = True
            self._working.release()

    def _store(self, frame: "DataFrame", number: int) -> None:
        with self._working:
            if self._is_ending:
                raise InterruptedError("the archive is ended; this batch comes first at its next start")
            stored = [from_json(row.piece) for row in frame.collect()]
            may_lack = self._options["dataLoss"] != DataLoss.FAIL
            try:
                self.tell(self._keeper.commit(stored, may_lack=may_lack))
            except (MillstreamError, OSError) as error:
                self._failure = error
                raise

    def tell(self, new: Sequence[ArchivePiece] = ()) -> None:
        """How far it is, with these added; also before the first batch, which may take long."""
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
            pass  # The batch is archived, whoever answers now.
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _behind(self) -> int:
        client, topic = client_of(self._options["bootstrap"]), self._shelf.topic
        places = [TopicPartition(topic, row.number) for row in view_of(client, topic).partitions]
        firsts = client.offsets(dict.fromkeys(places, "beginning"))
        lasts = client.offsets(dict.fromkeys(places, "latest"))
        reached = {where: self._keeper.ends.get(where.partition, firsts[where].offset) for where in places}
        return sum(max(0, lasts[where].offset - reached[where]) for where in places)
