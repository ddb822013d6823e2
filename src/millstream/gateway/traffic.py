"""Counts requests, events and bytes per interface, for the metrics."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from millstream.model.rights import Right
from millstream.process.metrics import Metric

CounterName = Literal["events_written", "events_read", "received_bytes", "sent_bytes"]

_ROWS: Sequence[tuple[CounterName, str]] = (
    ("events_written", "Events stored."),
    ("events_read", "Events returned to readers."),
    ("received_bytes", "Bytes of request bodies."),
    ("sent_bytes", "Bytes of response bodies."),
)


class Traffic:
    """The counters of one interface. Handlers add to them directly."""

    def __init__(self, interface: str) -> None:
        self.interface = interface
        self.events_written = 0
        self.events_read = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self._answers: Counter[tuple[Right, str]] = Counter()

    def answered(self, right: Right, status: str) -> None:
        """Count a finished request by the right it needed and its status."""
        self._answers[right, status] += 1

    @property
    def requests(self) -> Iterable[tuple[dict[str, str], int]]:
        for (right, status), count in self._answers.items():
            yield {"interface": self.interface, "right": right.value, "status": status}, count


def traffic_metrics(interfaces: Sequence[Traffic]) -> Iterable[Metric]:
    """Yield the metrics of these interfaces."""
    requests = tuple(row for each in interfaces for row in each.requests)
    yield Metric("millstream_gateway_requests_total", "counter", "Requests by right and status.", requests)
    for name, text in _ROWS:
        rows = tuple(({"interface": each.interface}, getattr(each, name)) for each in interfaces)
        yield Metric(f"millstream_gateway_{name}_total", "counter", text, rows)
