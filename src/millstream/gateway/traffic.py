"""What went through a gateway: plain integers that the interfaces add to, told when somebody asks."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from millstream.gateway.rights import Right
from millstream.process.metrics import Metric

Figure = Literal["events_written", "events_read", "received_bytes", "sent_bytes"]

_ROWS: Sequence[tuple[Figure, str]] = (
    ("events_written", "Events that were stored."),
    ("events_read", "Events that were answered."),
    ("received_bytes", "Bytes of requests, without their heads."),
    ("sent_bytes", "Bytes of answers, without their heads."),
)


class Traffic:
    """What went through one interface."""

    def __init__(self, interface: str) -> None:
        self.interface = interface
        self.events_written = 0
        self.events_read = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self._answers: Counter[tuple[Right, str]] = Counter()

    def answered(self, right: Right, status: str) -> None:
        """A request that needed this right has ended so."""
        self._answers[right, status] += 1

    @property
    def requests(self) -> Iterable[tuple[dict[str, str], int]]:
        for (right, status), count in self._answers.items():
            yield {"interface": self.interface, "right": right.value, "status": status}, count


def traffic_metrics(interfaces: Sequence[Traffic]) -> Iterable[Metric]:
    """The figures of these interfaces."""
    asked = tuple(row for each in interfaces for row in each.requests)
    yield Metric("millstream_gateway_requests_total", "counter", "Requests that were answered, and how.", asked)
    for name, text in _ROWS:
        rows = tuple(({"interface": each.interface}, getattr(each, name)) for each in interfaces)
        yield Metric(f"millstream_gateway_{name}_total", "counter", text, rows)
