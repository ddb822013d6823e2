"""Tracks the streaming queries of a session: rows, batches, lag, and how each query ended.

Spark calls the listener from its own threads, and delivers the events of one query in order.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from millstream.model.errors import MillstreamError
from millstream.spark.reading.stream_positions import from_json, offsets_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


@dataclass(frozen=True, slots=True)
class QueryState:
    """State of one query. `lag` is the number of unread messages after the last batch, or None if it is not known."""

    name: str
    rows: int = 0
    batches: int = 0
    lag: int | None = None
    is_over: bool = False
    failure: str | None = None
    """Spark's text about the failure, with all stack traces."""


class QueryMonitor(StreamingQueryListener):
    """Collects the states of all queries that start after it was added, in the order of their starts."""

    def __init__(self) -> None:
        self._states: dict[str, QueryState] = {}
        self._lock = threading.Lock()

    def states(self) -> Sequence[QueryState]:
        with self._lock:
            return list(self._states.values())

    def batches(self, run_id: str) -> int:
        """Returns the number of batches that a query has finished."""
        with self._lock:
            return self._states[run_id].batches if run_id in self._states else 0

    def failure(self) -> QueryState | None:
        """Returns the first failed query, or None."""
        return next((state for state in self.states() if state.failure is not None), None)

    def is_over(self) -> bool:
        """True if every query has ended."""
        return all(state.is_over for state in self.states())

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802  # Spark's names, here and below
        with self._lock:
            self._states[str(event.runId)] = QueryState(event.name or f"unnamed-{len(self._states) + 1}")

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        self._change(
            progress["runId"],
            lambda state: replace(
                state, rows=state.rows + progress["numInputRows"], batches=state.batches + 1, lag=lag_of(progress)
            ),
        )

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        self._change(str(event.runId), lambda state: replace(state, lag=0))

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        self._change(str(event.runId), lambda state: replace(state, is_over=True, failure=event.exception))

    def _change(self, run_id: str, change: Any) -> None:
        with self._lock:
            if run_id in self._states:
                self._states[run_id] = change(self._states[run_id])


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Returns the total lag of a query's topic sources, or None if no source reports one."""
    lags = [_lag(source.get("endOffset"), source.get("latestOffset")) for source in progress["sources"]]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _lag(end: Any, latest: Any) -> int | None:
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return None
    try:
        reached, there = offsets_of(from_json(end)), offsets_of(from_json(latest))
    except MillstreamError:
        return None  # It is a source of another kind.
    return sum(max(0, offset - reached.get(where, 0)) for where, offset in there.items())
