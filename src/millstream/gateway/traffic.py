"""Counts and times requests, counts events and bytes per interface, and logs each request at level DEBUG.

A route is the template of a path, such as `/v1/topics/{topic}`, or the full name of a gRPC method. So neither metrics
nor log lines contain names from requests, and the number of label sets is limited. Requests to unknown paths and
methods, and requests that the protocol refuses, have the route `""`.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from millstream.model.rights import Right
from millstream.process.metrics import Histogram, Metric

CounterName = Literal["events_written", "events_read", "received_bytes", "sent_bytes"]

NO_ROUTE = ""
"""The route of a request that no operation serves."""

_ROWS: Sequence[tuple[CounterName, str]] = (
    ("events_written", "Events stored."),
    ("events_read", "Events returned to readers."),
    ("received_bytes", "Bytes of request bodies."),
    ("sent_bytes", "Bytes of response bodies."),
)

_log = logging.getLogger(__name__)

now_s = time.monotonic
"""The clock of durations. The event loop's own has a resolution of a millisecond only."""


class Traffic:
    """The counters of one interface. Handlers add to them directly."""

    def __init__(self, interface: str) -> None:
        self.interface = interface
        self.events_written = 0
        self.events_read = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self._answers: Counter[tuple[Right, str, str]] = Counter()
        self._durations: dict[str, Histogram] = {}

    def answered(self, right: Right, route: str, status: str, *, begun_s: float, method: str, peer: str) -> None:
        """Count a finished request by the right it needed, its route and its status, and log it."""
        duration_s = now_s() - begun_s
        self._answers[right, route, status] += 1
        durations = self._durations.get(route)
        if durations is None:
            durations = self._durations[route] = Histogram()
        durations.observe(duration_s)
        if _log.isEnabledFor(logging.DEBUG):
            fields = {"interface": self.interface, "method": method, "route": route, "status": status}
            _log.debug("request handled", extra={**fields, "duration_ms": round(duration_s * 1000, 3), "peer": peer})

    def refused(self, status: int, method: str = "", client: tuple[str, int] | None = None) -> None:
        """Count and log a request that was refused before an operation could serve it."""
        peer = peer_of(client)
        self.answered(Right.NOTHING, NO_ROUTE, str(status), begun_s=now_s(), method=method, peer=peer)

    @property
    def requests(self) -> Iterable[tuple[dict[str, str], int]]:
        for (right, route, status), count in self._answers.items():
            labels = {"interface": self.interface, "right": right.value, "route": route, "status": status}
            yield labels, count

    @property
    def durations(self) -> Iterable[tuple[dict[str, str], Histogram]]:
        for route, histogram in self._durations.items():
            yield {"interface": self.interface, "route": route}, histogram


def peer_of(client: tuple[str, int] | None) -> str:
    """Return the address and port of a client, as log lines show them."""
    return f"{client[0]}:{client[1]}" if client else ""


def traffic_metrics(interfaces: Sequence[Traffic]) -> Iterable[Metric]:
    """Yield the metrics of these interfaces."""
    requests = tuple(row for each in interfaces for row in each.requests)
    yield Metric("millstream_gateway_requests_total", "counter", "Requests by right, route and status.", requests)
    durations = tuple(row for each in interfaces for row in each.durations)
    text = "Time from the head of a request to its response, waiting included."
    yield Metric("millstream_gateway_request_seconds", "histogram", text, durations)
    for name, text in _ROWS:
        rows = tuple(({"interface": each.interface}, getattr(each, name)) for each in interfaces)
        yield Metric(f"millstream_gateway_{name}_total", "counter", text, rows)
