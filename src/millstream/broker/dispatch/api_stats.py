"""Counts the requests of each API with their durations, and reports them with the errors in their responses.

The duration of a request lasts from its dispatch until its response is in the outbox. It includes the wait for a flush,
for data or for earlier requests of the connection. A request without a response (acks=0) ends when it is handled. A
request that closes its connection is not counted here: the close has a reason of its own (see `net.close_reasons`).

Routes hold the `observe` method of their API's histogram, so that a request needs no lookup.
"""

from collections.abc import Iterable, Iterator

from millstream.model.errors import ErrorCode
from millstream.process.metrics import Histogram, Metric, Sample
from millstream.wire.error_counts import error_counts


class ApiStats:
    """The durations of the requests of one API. Their number is the number of requests."""

    __slots__ = ("api", "durations")

    def __init__(self, api: str) -> None:
        self.api = api
        self.durations = Histogram()


def api_metrics(stats: Iterable[ApiStats]) -> Iterator[Metric]:
    """Yields requests, errors and durations of the APIs that were used."""
    used = [each for each in stats if each.durations.count]
    yield Metric(
        "millstream_api_requests_total",
        "counter",
        "Answered requests by API.",
        [({"api": each.api}, each.durations.count) for each in used],
    )
    yield Metric("millstream_api_errors_total", "counter", "Errors in responses by API.", list(_error_samples()))
    yield Metric(
        "millstream_api_duration_seconds",
        "histogram",
        "Time from the dispatch of a request to its response, waits included.",
        [({"api": each.api}, each.durations) for each in used],
    )


def _error_samples() -> Iterator[Sample]:
    for api, numbers in sorted(error_counts().items()):
        named: dict[str, int] = {}
        for number, count in sorted(numbers.items()):
            # Several numbers that the table lacks have one name, and a set of labels must be unique.
            name = ErrorCode.of(number).name
            named[name] = named.get(name, 0) + count
        for name, count in named.items():
            yield {"api": api, "error": name}, count
