"""Renders metrics in Prometheus' text format.

Each part keeps its own counters and histograms, and reports them when they are scraped. The text is rendered in slices,
so that a scrape of many partitions does not block the event loop. The format is simple enough to write without the
client library, whose histograms cost several times as much per observation (docs/decisions/0005-logs-and-metrics.md).
The tests parse the text with that library.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE_LINES = 500
"""Number of lines that are rendered at a time. This takes about a millisecond."""

SECONDS_BOUNDS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
"""Upper bounds of latency buckets, in seconds: from 50 microseconds to 10 seconds."""

COUNT_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Upper bounds of buckets for small counts."""

Labels = Mapping[str, str]
NO_LABELS: Labels = {}


class Histogram:
    """Counts observed values by bucket. Only one thread, usually the event loop's, may call `observe`.

    Invariant: `counts` has one entry per bound, for the values up to it and above the bound before, and a last entry
    for larger values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        assert sorted(set(bounds)) == [*bounds], "bounds increase"
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of observed values."""
        return sum(self.counts)


Sample = tuple[Labels, "float | Histogram"]
NO_SAMPLE: Sample = (NO_LABELS, 0)
"""Renders nothing, and counts as a line of its slice."""


class Metric(NamedTuple):
    """One metric, with a value for each set of labels. The values of a histogram are `Histogram` objects.

    Many samples should be a generator: it runs in slices too. It must not iterate over anything that changes meanwhile.
    It yields NO_SAMPLE after work that found no value.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Iterable[Sample]


Source = Callable[[], Iterable[Metric]]


def gauge(name: str, text: str, value: float) -> Metric:
    """Returns a metric without labels whose value goes up and down."""
    return Metric(name, "gauge", text, ((NO_LABELS, value),))


def counter(name: str, text: str, value: float) -> Metric:
    """Returns a metric without labels whose value only increases. Its name ends in `_total`."""
    return Metric(name, "counter", text, ((NO_LABELS, value),))


def histogram(name: str, text: str, value: Histogram) -> Metric:
    """Returns a histogram without labels."""
    return Metric(name, "histogram", text, ((NO_LABELS, value),))


def render(metrics: Iterable[Metric]) -> bytes:
    """Returns the response to a scrape."""
    return b"".join(_slices(metrics))


async def render_in_slices(metrics: Iterable[Metric]) -> bytes:
    """Returns the response to a scrape. Other work of the event loop runs between slices."""
    slices = []
    for each in _slices(metrics):
        slices.append(each)
        await asyncio.sleep(0)
    return b"".join(slices)


def _slices(metrics: Iterable[Metric]) -> Iterator[bytes]:
    lines: list[str] = []
    for line in _lines(metrics):
        lines.append(line)
        if len(lines) == SLICE_LINES:
            yield _joined(lines)
            lines = []
    yield _joined(lines)


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines if line).encode()


def _lines(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        yield f"# HELP {metric.name} {_escaped(metric.help, quotes=False)}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for sample in metric.samples:
            if sample is NO_SAMPLE:
                yield ""
                continue
            labels, value = sample
            if isinstance(value, Histogram):
                yield from _histogram_lines(metric.name, labels, value)
            else:
                yield f"{metric.name}{_braces(_inner(labels))} {_number(value)}"


def _histogram_lines(name: str, labels: Labels, value: Histogram) -> Iterator[str]:
    inner = _inner(labels)
    prefix = f"{inner}," if inner else ""
    count = 0
    for bound, more in zip((*value.bounds, None), tuple(value.counts), strict=True):
        count += more
        upper = "+Inf" if bound is None else _number(bound)
        yield f'{name}_bucket{{{prefix}le="{upper}"}} {count}'
    yield f"{name}_sum{_braces(inner)} {_number(value.sum)}"
    yield f"{name}_count{_braces(inner)} {count}"


def _inner(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(text, quotes=True)}"' for name, text in labels.items())


def _braces(inner: str) -> str:
    return f"{{{inner}}}" if inner else ""


def _number(value: float) -> str:
    # Integers are written in full: as a float, a byte counter would lose its last digits.
    return str(value) if isinstance(value, int) else repr(float(value))


def _escaped(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text
