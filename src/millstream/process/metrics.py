"""Metrics in Prometheus' text format: asked for, not counted along.

Whoever has figures gives them when asked, so that the paths that make them carry no instruments, and nothing is kept
twice. Written out by hand: the format is a few lines, and the client library would cost more memory than the broker's
own state. The tests read the text back with that library.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
NO_LABELS: Labels = {}


class Metric(NamedTuple):
    """One figure, or one for each set of labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: tuple[tuple[Labels, float], ...]


Source = Callable[[], Iterable[Metric]]


def gauge(name: str, text: str, value: float) -> Metric:
    """A figure that goes up and down."""
    return Metric(name, "gauge", text, ((NO_LABELS, value),))


def counter(name: str, text: str, value: float) -> Metric:
    """A figure that only goes up; its name ends in `_total`."""
    return Metric(name, "counter", text, ((NO_LABELS, value),))


def render(metrics: Iterable[Metric]) -> bytes:
    """The text that a scrape gets."""
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escaped(metric.help, quotes=False)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for labels, value in metric.samples:
            inner = ",".join(f'{name}="{_escaped(text, quotes=True)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{inner}}} {_number(value)}" if inner else f"{metric.name} {_number(value)}")
    return ("\n".join(lines) + "\n").encode()


def _number(value: float) -> str:
    # Whole numbers are written in full: as a float, a byte counter would lose its last digits.
    return str(value) if isinstance(value, int) else repr(float(value))


def _escaped(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text
