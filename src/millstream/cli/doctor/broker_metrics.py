"""Finds slow disks, groups that lag, and the free space in the metrics of a running broker.

A broker of another version may lack some of the metrics, or have other labels. What is missing is not reported.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from millstream.cli.doctor.diagnosis import Diagnosis
from millstream.cli.output import shown_size

FSYNC_SLOW_S = 0.1
FSYNC_SLOW_SHARE_MAX = 0.01
FSYNCS_MIN = 20
LAG_MAX = 100_000
GROUPS_MAX = 5

_LINE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One line of the metrics page."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_samples(text: str) -> list[Sample]:
    """Parses a metrics page. Lines that are not understood are left out."""
    found = []
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if isfinite(value):
            found.append(Sample(match[1], dict(_LABEL.findall(match[2] or "")), value))
    return found


def unlabelled(samples: Iterable[Sample]) -> dict[str, float]:
    return {sample.name: sample.value for sample in samples if not sample.labels}


def diagnose_metrics(samples: Sequence[Sample]) -> Iterator[Diagnosis]:
    """Yields what the metrics show; nothing for metrics that the broker does not have."""
    yield from _fsyncs(samples)
    yield from _lags(samples)
    for sample in samples:
        if sample.name == "millstream_directory_free_bytes":
            where = " ".join(sample.labels.values())
            yield Diagnosis("ok", f"space of {where}", f"{shown_size(int(sample.value))} free")


def _fsyncs(samples: Sequence[Sample]) -> Iterator[Diagnosis]:
    name = "millstream_fsync_seconds"
    count = sum(sample.value for sample in samples if sample.name == f"{name}_count")
    buckets: Counter[float] = Counter()
    for sample in samples:
        if sample.name == f"{name}_bucket" and (bound := _bound(sample)) is not None:
            buckets[bound] += int(sample.value)
    fast = [number for bound, number in sorted(buckets.items()) if bound <= FSYNC_SLOW_S]
    if count < FSYNCS_MIN or not fast:
        return
    slow = count - fast[-1]
    text = f"{slow:.0f} of {count:.0f} flushes took longer than {FSYNC_SLOW_S * 1000:.0f} ms"
    if slow > FSYNC_SLOW_SHARE_MAX * count:
        advice = (
            "The disk is slow: look for other load on it (iostat -x) and at its health. Each acknowledged write waits"
            " for a flush."
        )
        yield Diagnosis("warning", "flushes", text, advice)
    else:
        yield Diagnosis("ok", "flushes", text)


def _bound(sample: Sample) -> float | None:
    try:
        return float(sample.labels.get("le", ""))
    except ValueError:
        return None


def _lags(samples: Sequence[Sample]) -> Iterator[Diagnosis]:
    lags: Counter[str] = Counter()
    for sample in samples:
        if sample.name == "millstream_group_lag" and "group" in sample.labels:
            lags[sample.labels["group"]] += int(sample.value)
    for group, lag in lags.most_common(GROUPS_MAX):
        if lag > LAG_MAX:
            advice = (
                f"Run `millstream group describe {group}` twice: if committed offsets stand still, its consumers are"
                " stuck or missing; if they grow slower than the ends, add consumers."
            )
            yield Diagnosis("warning", f"group {group}", f"{lag} messages behind", advice)
