"""A pipeline while it runs: a session, its queries watched, and an end in peace, however it comes.

    with started("name", master=None, settings={}, tell=print, show=show) as pipeline:
        ...  # start queries with pipeline.spark
        pipeline.wait()

Whatever happens within, queries are stopped and Spark with them: after a signal each query may finish its batch first.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from millstream.spark.pipelines.failures import pipeline_error, told
from millstream.spark.pipelines.query_monitor import QueryMonitor, QueryState
from millstream.spark.pipelines.spark_log import JAVA_OPTIONS, SparkLog, java_options, mute_errors
from millstream.spark.pipelines.stopping import Stop, aside, stop_queries
from millstream.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GRACE_S = 30.0
SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    # A query that does not end when it is told to must not keep the command from ending.
    "spark.sql.streaming.stopTimeout": "60s",
}
"""What a command sets unless the caller says otherwise."""
_TICK_S = 0.2
_LAST_EVENTS_S = 10.0


class Pipeline:
    """A session in which a pipeline runs. `file` is where its code is from, if it is from one."""

    def __init__(self, spark: "SparkSession", stop: Stop | None = None, file: Path | None = None) -> None:
        self.spark = spark
        self.watch = QueryMonitor()
        self._stop = stop or Stop()
        self._file = file or Path("/")
        spark.streams.addListener(self.watch)

    def wait(self) -> None:
        """Until all queries have ended, one has failed (PipelineError), or the end was asked for."""
        self._stop.interrupts = False
        while not self._stop.is_asked and self.watch.failure() is None and self.spark.streams.active:
            time.sleep(_TICK_S)
        if not self._stop.is_asked:
            self._hear_ends()
            self._raise_failure()

    def asked_to_end(self) -> Callable[[], bool]:
        """Whether it was; from now on a signal interrupts nothing, and whoever works has to look here."""
        self._stop.interrupts = False
        return lambda: self._stop.is_asked

    def _hear_ends(self) -> None:
        """Spark tells that a query has ended some time after it has."""
        deadline = time.monotonic() + _LAST_EVENTS_S
        while self.watch.failure() is None and not self.watch.is_over() and time.monotonic() < deadline:
            time.sleep(_TICK_S)

    def _raise_failure(self) -> None:
        state = self.watch.failure()
        if state is not None and state.failure is not None:
            raise told(state.failure, f"query {state.name}", self._file)

    def end(self, tell: Callable[[str], None], grace_s: float) -> None:
        """Stop what runs; only who was asked to end takes its time."""
        if self._stop.is_asked:
            tell("Stopping; Ctrl-C once more stops at once.")
        cut = stop_queries(self.spark, self.watch, grace_s if self._stop.is_asked else 0.0)
        self._hear_ends()
        self.spark.streams.removeListener(self.watch)
        if cut and self._stop.is_asked:
            tell(f"Not ended within {grace_s:g} s, so cut off: {', '.join(cut)}. The next start repeats that batch.")


@contextmanager
def started(
    name: str,
    *,
    master: str | None,
    settings: Mapping[str, str],
    tell: Callable[[str], None],
    show: Callable[[Sequence[QueryState]], None],
    log: TextIO | None = None,
    grace_s: float = GRACE_S,
    file: Path | None = None,
) -> Iterator[Pipeline]:
    """Start Spark, and end it and its queries at the end.

    What Spark has to say to people goes to `tell`, line by line, and all of it to `log`; `show` is told again and again
    how the queries are. Both are called from threads. A signal while no query runs is a KeyboardInterrupt (SIGTERM is
    Terminated), also while Spark starts; with queries it ends them, and this, quietly.
    JavaNotFoundError where there is no Java; PipelineError where Spark does not start.
    """
    asked = {**SETTINGS, **settings, JAVA_OPTIONS: java_options(settings.get(JAVA_OPTIONS))}
    stop = Stop()
    spark_log = SparkLog(tell, log)
    mute_errors()
    with stop.by_signals():
        tell("Starting Spark ...")
        with spark_log.starting(stop.held):
            spark = _begun(name, master, asked)
            stop.listen()
            stop.interrupt()  # Whoever has caught it on the way.
        pipeline = Pipeline(spark, stop, file)
        try:
            with _shown(pipeline.watch, show), _ended(pipeline, spark_log, tell, grace_s):
                yield pipeline
        finally:
            aside(spark.stop)


def _begun(name: str, master: str | None, settings: Mapping[str, str]) -> "SparkSession":
    """What was wrong has to be asked while there is a Java that answers."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return session(name, master=master, settings=settings)
    except (Py4JError, PySparkException) as error:
        raise pipeline_error(error, f"Spark on {master or 'this machine'}", Path("/")) from None


@contextmanager
def _shown(watch: QueryMonitor, show: Callable[[Sequence[QueryState]], None]) -> Iterator[None]:
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(_TICK_S):
            show(watch.states())
        show(watch.states())

    thread = threading.Thread(target=go_on, name="progress of a pipeline", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _ended(pipeline: Pipeline, spark_log: SparkLog, tell: Callable[[str], None], grace_s: float) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if pipeline.watch.is_over():
            raise
    finally:
        spark_log.is_hushed = True
        aside(partial(pipeline.end, tell, grace_s))


@contextmanager
def reading_once() -> Iterator[None]:
    """Streams that are started within read what is there and end, whatever trigger they were given."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    before = {name: getattr(DataStreamWriter, name) for name in ("start", "toTable")}
    for name, begin in before.items():
        setattr(DataStreamWriter, name, _once(begin))
    try:
        yield
    finally:
        for name, begin in before.items():
            setattr(DataStreamWriter, name, begin)


def _once(begin: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(begin)
    def once(self: Any, *arguments: Any, **options: Any) -> Any:
        return begin(self.trigger(availableNow=True), *arguments, **options)

    return once
