"""Runs a pipeline: starts a session, monitors its queries, and stops both in order.

    with started("name", master=None, settings={}, tell=print, show=show) as pipeline:
        ...  # start queries with pipeline.spark
        pipeline.wait()

The queries and Spark are stopped however the block ends. After a signal, each query may finish its batch first.
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
    # A query that does not stop on request must not keep the command from ending.
    "spark.sql.streaming.stopTimeout": "60s",
}
"""Spark settings of the command; the caller can override each of them."""
_TICK_S = 0.2
_LAST_EVENTS_S = 10.0


class Pipeline:
    """A session in which a pipeline runs. `file` is the user's file, if there is one."""

    def __init__(self, spark: "SparkSession", stop: Stop | None = None, file: Path | None = None) -> None:
        self.spark = spark
        self.watch = QueryMonitor()
        self._stop = stop or Stop()
        self._file = file or Path("/")
        spark.streams.addListener(self.watch)

    def wait(self) -> None:
        """Waits until all queries have ended, or a stop was requested. Raises PipelineError if a query fails."""
        self._stop.interrupts = False
        while not self._stop.is_asked and self.watch.failure() is None and self.spark.streams.active:
            time.sleep(_TICK_S)
        if not self._stop.is_asked:
            self._await_end_events()
            self._raise_failure()

    def asked_to_end(self) -> Callable[[], bool]:
        """Returns a function that is True once a stop was requested.

        From now on a signal interrupts nothing, so long-running work must call that function.
        """
        self._stop.interrupts = False
        return lambda: self._stop.is_asked

    def _await_end_events(self) -> None:
        """Waits for Spark's events about ended queries, which arrive some time after the end."""
        deadline = time.monotonic() + _LAST_EVENTS_S
        while self.watch.failure() is None and not self.watch.is_over() and time.monotonic() < deadline:
            time.sleep(_TICK_S)

    def _raise_failure(self) -> None:
        """Raises PipelineError for the first failed query, if any."""
        state = self.watch.failure()
        if state is not None and state.failure is not None:
            raise told(state.failure, f"query {state.name}", self._file)

    def end(self, tell: Callable[[str], None], grace_s: float) -> None:
        """Stops the running queries. After a stop request, each may use the grace period to finish its batch."""
        if self._stop.is_asked:
            tell("Stopping; press Ctrl-C again to stop immediately.")
        cut = stop_queries(self.spark, self.watch, grace_s if self._stop.is_asked else 0.0)
        self._await_end_events()
        self.spark.streams.removeListener(self.watch)
        if cut and self._stop.is_asked:
            tell(f"Stopped within a batch, after {grace_s:g} s: {', '.join(cut)}. The next start repeats it.")


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
    """Starts Spark, and stops it and its queries at the end of the block.

    `tell` gets Spark's messages for users, line by line; `log` gets everything. `show` is called repeatedly with the
    states of the queries. Both callbacks run in other threads.

    A signal while no query runs raises KeyboardInterrupt (Terminated for SIGTERM), also while Spark starts. While
    queries run, it stops them and ends the block without an exception. Raises JavaNotFoundError if there is no Java;
    PipelineError if Spark does not start.
    """
    asked = {**SETTINGS, **settings, JAVA_OPTIONS: java_options(settings.get(JAVA_OPTIONS))}
    stop = Stop()
    spark_log = SparkLog(tell, log)
    mute_errors()
    with stop.by_signals():
        tell("Starting Spark ...")
        with spark_log.starting(stop.held):
            spark = _create_session(name, master, asked)
            stop.listen()
            stop.interrupt()  # Raise again if code in between has caught the KeyboardInterrupt.
        pipeline = Pipeline(spark, stop, file)
        try:
            with _showing_progress(pipeline.watch, show), _ending_queries(pipeline, spark_log, tell, grace_s):
                yield pipeline
        finally:
            aside(spark.stop)


def _create_session(name: str, master: str | None, settings: Mapping[str, str]) -> "SparkSession":
    """Creates the session. Errors are converted here, because their texts come from Java, which ends soon after."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return session(name, master=master, settings=settings)
    except (Py4JError, PySparkException) as error:
        raise pipeline_error(error, f"Spark on {master or 'this machine'}", Path("/")) from None


@contextmanager
def _showing_progress(watch: QueryMonitor, show: Callable[[Sequence[QueryState]], None]) -> Iterator[None]:
    is_done = threading.Event()

    def show_until_done() -> None:
        while not is_done.wait(_TICK_S):
            show(watch.states())
        show(watch.states())

    thread = threading.Thread(target=show_until_done, name="pipeline progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


@contextmanager
def _ending_queries(
    pipeline: Pipeline, spark_log: SparkLog, tell: Callable[[str], None], grace_s: float
) -> Iterator[None]:
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
    """Makes all streams that start within the block read the available data and end, whatever their trigger."""
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
