"""A topic's archive, brought up to date once or for as long as it is wanted."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.spark.archive.pieces import Piece, from_json
from penstock.spark.archive.shelf import Keeper, Shelf, kept
from penstock.spark.archive.store import located
from penstock.spark.connections import client_of
from penstock.spark.options import DataLoss, default_bootstrap, invalid
from penstock.spark.survey import view_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY_S = 60.0
BATCH_BYTES = 4 * 1024 * 1024 * 1024
"""About so much of the log is one batch: what a crash makes to be done again, at most."""
_TICK_S = 1
_OURS = re.compile(r"Error: ([A-Z_]+): (.*)")


@dataclass(frozen=True, slots=True)
class Progress:
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
    on_progress: Callable[[Progress], None] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Progress:
    """Store a topic's messages as Parquet files under `to`, from where its archive ends; each message once.

    `to` is a directory or a URI (s3://, gs://, hdfs://) that all of Spark's workers have. With `once` it ends when what
    was there at the beginning is archived; otherwise it goes on with what comes, in a batch every so many seconds,
    until `is_stopped` says so. Where messages are gone that were to be archived, it fails with OFFSET_OUT_OF_RANGE;
    with `data_loss="earliest"` it goes on with those that are there, and the archive remembers the hole.

    Killed at any time, it goes on by the next call as if nothing had been: a batch is part of the archive whole or not
    at all. `checkpoint` is where Spark keeps how far it is, beside the archive unless said otherwise; an archive does
    without one that is lost. UNKNOWN_TOPIC_OR_PARTITION without such a topic; UNKNOWN_TOPIC_ID where the archive is
    that of an older one with this name; DATA_DIRECTORY_IN_USE while another process writes it.
    """
    if data_loss not in (DataLoss.FAIL, DataLoss.EARLIEST):
        raise invalid("data_loss", data_loss, "expected fail or earliest")
    bootstrap = bootstrap or default_bootstrap()
    shelf = Shelf(located(to), topic)
    _begin(shelf, bootstrap)
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
            run.go({"availableNow": True}, is_stopped)  # As quickly as it can, up to now; then at leisure.
            if not once and not is_stopped():
                run.go({"processingTime": f"{every} seconds"}, is_stopped)
        finally:
            keeper.close()
        return run.progress


def _begin(shelf: Shelf, bootstrap: str) -> None:
    topic_id = view_of(client_of(bootstrap), shelf.topic).topic_id
    try:
        shelf.begin(topic_id)
    except OSError as error:
        text = f"an archive cannot be made in {shelf.path}: {error.strerror or error}"
        raise PenstockError(ErrorCode.INVALID_SETTING, text) from None


def _checkpoint(shelf: Shelf) -> str:
    if shelf.store.is_local:
        return shelf.checkpoint
    if shelf.path.startswith("hdfs://"):
        return f"{shelf.path.rstrip('/')}/{shelf.home}/checkpoint"
    text = f"say where Spark keeps how far it is (checkpoint): it may have no access to {shelf.path} of its own"
    raise PenstockError(ErrorCode.INVALID_SETTING, text)


class _Run:
    def __init__(
        self,
        spark: "SparkSession",
        keeper: Keeper,
        shelf: Shelf,
        options: dict[str, str],
        checkpoint: str,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        from penstock.spark.archive.source import ArchivingSource

        spark.dataSource.register(ArchivingSource)
        self._spark = spark
        self._keeper = keeper
        self._shelf = shelf
        self._options = options
        self._checkpoint = checkpoint
        self._on_progress = on_progress
        self._failure: BaseException | None = None
        self.progress = Progress()

    def go(self, trigger: dict[str, Any], is_stopped: Callable[[], bool]) -> None:
        """Until the query ends, or is stopped: the batch that runs is then given up, unless it is being committed."""
        frame = self._spark.readStream.format("penstock_archiving").options(**self._options).load()
        writer = frame.writeStream.foreachBatch(self._store).option("checkpointLocation", self._checkpoint)
        query = writer.queryName(f"archive of {self._shelf.topic}").trigger(**trigger).start()
        try:
            while not query.awaitTermination(_TICK_S):
                if is_stopped():
                    break
        except Exception as error:
            raise self._failure or _told(error) from None
        finally:
            query.stop()

    def _store(self, frame: "DataFrame", number: int) -> None:
        stored = [from_json(row.piece) for row in frame.collect()]
        try:
            new = self._keeper.commit(stored)
            self._tell(new)
        except (PenstockError, OSError) as error:
            self._failure = error
            raise

    def _tell(self, new: list[Piece]) -> None:
        before = self.progress
        self.progress = Progress(
            rows=before.rows + sum(piece.rows for piece in new),
            files=before.files + sum(len(piece.files) for piece in new),
            size_bytes=before.size_bytes + sum(piece.size_bytes for piece in new),
            batches=before.batches + bool(new),
            lost=before.lost + sum(piece.end - piece.start for piece in new if piece.is_lost),
            behind=self._behind(),
        )
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _behind(self) -> int:
        client = client_of(self._options["bootstrap"])
        places = [TopicPartition(self._shelf.topic, number) for number in self._keeper.ends]
        if not places:
            return 0
        ends = client.offsets(dict.fromkeys(places, "latest"))
        return sum(max(0, ends[where].offset - self._keeper.ends[where.partition]) for where in places)


def _told(error: Exception) -> Exception:
    """What a task or the query's plan has raised, out of all that Spark says about it."""
    found = _OURS.findall(str(error))
    if found and found[-1][0] in ErrorCode.__members__:
        return PenstockError(ErrorCode[found[-1][0]], found[-1][1])
    return error
