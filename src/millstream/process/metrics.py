"""Renders metrics in Prometheus' text format.

Each part reports its values when they are scraped, so hot paths need no instrumentation and no value is stored twice.
The format is simple enough to write without the client library, which would use more memory than the broker's own
state. The tests parse the text with that library.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
NO_LABELS: Labels = {}


class Metric(NamedTuple):
    """One metric, with a value for each set of labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: tuple[tuple[Labels, float], ...]


Source = Callable[[], Iterable[Metric]]


def gauge(name: str, text: str, value: float) -> Metric:
    """Returns a metric without labels whose value goes up and down."""
    return Metric(name, "gauge", text, ((NO_LABELS, value),))


def counter(name: str, text: str, value: float) -> Metric:
    """Returns a metric without labels whose value only increases. Its name ends in `_total`."""
    return Metric(name, "counter", text, ((NO_LABELS, value),))


def render(metrics: Iterable[Metric]) -> bytes:
    """Returns the response to a scrape."""
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escaped(metric.help, quotes=False)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for labels, value in metric.samples:
            inner = ",".join(f'{name}="{_escaped(text, quotes=True)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{inner}}} {_number(value)}" if inner else f"{metric.name} {_number(value)}")
    return ("\n".join(lines) + "\n").encode()


def _number(value: float) -> str:
    # Integers are written in full: as a float, a byte counter would lose its last digits.
    return str(value) if isinstance(value, int) else repr(float(value))


def _escaped(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text
