"""Provides a metrics object that records all calls."""

from collections import Counter
from collections.abc import Mapping


class RecordedMetrics:
    """A metrics object that records all calls."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[str, ...]] = Counter()
        self.observed: Counter[tuple[str, ...]] = Counter()

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        self.counted[name, *labels.values()] += amount

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        assert seconds >= 0
        self.observed[name, *labels.values()] += 1
