"""Reads a query's checkpoint: the planned and completed batches, and the offsets that each of them reads."""

import json
from pathlib import Path
from typing import NamedTuple

Offsets = dict[int, int]
"""Offsets by partition of the query's topic."""


class Batch(NamedTuple):
    start: Offsets
    end: Offsets


class Checkpoint:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def planned(self) -> int:
        """Return the number of the last batch with a planned end; -1 for none."""
        return self._last("offsets")

    def done(self) -> int:
        """Return the number of the last completed batch; -1 for none."""
        return self._last("commits")

    def end(self) -> Offsets:
        """Return the end offsets of the last completed batch."""
        return self._offsets(self.done())

    def batches(self) -> list[Batch]:
        ends = [self._offsets(number) for number in range(self.done() + 1)]
        return [Batch(start, end) for start, end in zip([dict[int, int](), *ends], ends, strict=False)]

    def _offsets(self, number: int) -> Offsets:
        if number < 0:
            return {}
        text = (self._directory / "offsets" / str(number)).read_text().splitlines()[-1]
        (position,) = (each for key, each in json.loads(text).items() if key != "#format")
        return {int(partition): offset for partition, offset in position["offsets"].items()}

    def _last(self, kind: str) -> int:
        directory = self._directory / kind
        if not directory.is_dir():
            return -1
        return max((int(each.name) for each in directory.iterdir() if each.name.isdecimal()), default=-1)
