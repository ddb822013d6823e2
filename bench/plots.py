"""Draws small SVG plots that are readable on light and dark backgrounds. Equal figures give equal bytes.

`ratios` shows figures relative to Kafka's on a logarithmic scale, so that twice and half look alike. `lines` shows how
a cost changes as something grows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from bench.targets import COSTS, LATENCIES, SPEEDS, Row

PLOTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("cost", "Broker CPU per message, Millstream as a share of Kafka (less is better)", COSTS),
    ("speed", "Messages per second, Millstream as a multiple of Kafka (more is better)", SPEEDS),
    ("latency", "Latency, Millstream as a share of Kafka (less is better)", LATENCIES),
    (
        "footprint",
        "Memory and time to start, Millstream as a share of Kafka (less is better)",
        ("MB", "s to first acknowledgement"),
    ),
)
"""File name, title, and figures of each plot."""

WIDTH, LABELS, RIGHT, TOP, STEP = 1060, 490, 60, 58, 22
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 14px }
.small { font-size: 11px; fill: #57606a }
.grid { stroke: #d0d7de } .even { stroke: #57606a; stroke-dasharray: 4 3 }
.met { fill: #2da44e } .missed { fill: #cf222e } .plain { fill: #8c959f }
.spread { stroke: #24292f } .target { stroke: #0969da; stroke-width: 3 }
.line { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 }
.grid { stroke: #30363d } .even { stroke: #9198a1 } .spread { stroke: #e6edf3 } .target { stroke: #58a6ff }
.met { fill: #3fb950 } .missed { fill: #f85149 } .plain { fill: #6e7681 }
}
""".strip()
COLOURS = ("#0969da", "#bf8700", "#8250df", "#1a7f37", "#cf222e", "#0a7f8c")
"""Line colours, with contrast on white and on black."""


def write_ratios(directory: Path, rows: Sequence[Row]) -> list[tuple[str, Path]]:
    """Writes a plot for each kind of figure that was measured; returns their titles and files."""
    written = []
    for name, title, metrics in PLOTS:
        chosen = [row for row in rows if row.metric in metrics and row.ratio is not None]
        if chosen:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{name}.svg"
            path.write_text(ratios(title, chosen))
            written.append((title, path))
    return written


def ratios(title: str, rows: Sequence[Row]) -> str:
    """Draws a bar for each row, from 1 (Kafka) to its ratio, with the spread of the rounds and the target if there is
    one.
    """
    seen = [1.0, *(value for row in rows for value in (row.ratio or 1.0, *row.ratios))]
    seen += [row.target[1] for row in rows if row.target]
    low = max((tick for tick in TICKS if tick <= min(seen)), default=TICKS[0])
    high = min((tick for tick in TICKS if tick >= max(seen)), default=TICKS[-1])

    def x(value: float) -> float:
        share = math.log(min(max(value, low), high) / low) / math.log(high / low)
        return LABELS + share * (WIDTH - LABELS - RIGHT)

    bottom = TOP + STEP * len(rows)
    parts = [
        _text(12, 22, title, "title"),
        _text(12, 40, "bar: median; thin line: the rounds; blue mark: target", "small"),
    ]
    for tick in TICKS:
        if low <= tick <= high:
            kind = "even" if tick == 1 else "grid"
            parts.append(_line(x(tick), TOP - 6, x(tick), bottom, kind))
            parts.append(_text(x(tick), bottom + 16, f"{tick:g}", "small", "middle"))
    for number, row in enumerate(rows):
        parts += _bar(row, TOP + STEP * number, x)
    return _svg(bottom + 28, parts)


def _bar(row: Row, y: float, x: Callable[[float], float]) -> list[str]:
    ratio = row.ratio or 1.0
    kind = {True: "met", False: "missed", None: "plain"}[row.is_met]
    left, right = sorted((x(1.0), x(ratio)))
    parts = [
        _text(LABELS - 8, y + 13, f"{row.workload}, {row.metric}", "", "end"),
        f'<rect class="{kind}" x="{left:.1f}" y="{y + 3:.1f}" width="{max(right - left, 1):.1f}" height="{STEP - 8}"/>',
        _line(x(min(row.ratios)), y + 10, x(max(row.ratios)), y + 10, "spread"),
        _text(WIDTH - RIGHT + 10, y + 13, f"{ratio:.2f}", ""),
    ]
    if row.target:
        parts.append(_line(x(row.target[1]), y + 1, x(row.target[1]), y + STEP - 3, "target"))
    return parts


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], limit: float) -> str:
    """Draws a line for each series of (amount, cost relative to the cost at the smallest amount), and marks the
    `limit`.

    Amounts are on a logarithmic scale, from the smallest of each series at the left to its largest at the right.
    """
    height, left, right = 260, 60, WIDTH - 400
    top = max([limit, *(share for points in series.values() for _, share in points)]) * 1.08
    parts = [_text(12, 22, title, "title"), _text(12, 40, "blue: the limit", "small")]

    def y(share: float) -> float:
        return TOP + (1 - share / top) * height

    for share in (0.0, 0.5, 1.0):
        parts += [
            _line(left, y(share), right, y(share), "grid"),
            _text(left - 8, y(share) + 4, f"{share:g}", "small", "end"),
        ]
    parts.append(_line(left, y(limit), right, y(limit), "target"))
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        reach = math.log1p(points[-1][0]) - math.log1p(points[0][0]) or 1.0
        places = [
            (left + (math.log1p(amount) - math.log1p(points[0][0])) / reach * (right - left), y(share))
            for amount, share in points
        ]
        drawn = " ".join(f"{place:.1f},{level:.1f}" for place, level in places)
        parts.append(f'<polyline class="line" stroke="{colour}" points="{drawn}"/>')
        parts.append(f'<circle cx="{right + 22}" cy="{TOP + 18 * number + 2}" r="5" fill="{colour}"/>')
        parts.append(_text(right + 34, TOP + 18 * number + 6, f"{name}: {points[-1][1]:.2f}", ""))
    bottom = TOP + max(height, 18 * len(series))
    parts += [_text(left, bottom + 16, "little", "small"), _text(right, bottom + 16, "much", "small", "end")]
    return _svg(bottom + 28, parts)


def _svg(height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
