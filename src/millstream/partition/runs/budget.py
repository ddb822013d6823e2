"""Limits the entries of one index and of all indexes of a broker together."""

from typing import Protocol

from msgspec import Struct

_AGES = 8
_IN_MEMORY_EACH_MIN = 256
_UNSAVED = 4
"""Factor by which memory may exceed its limit while saves fail. Beyond it the oldest entries are dropped."""


class RunLimits(Struct, frozen=True):
    window_ms: int | None = None
    """Retention time of an entry. None keeps it until it is trimmed or below the lowest key."""
    most: int | None = None
    """Maximum entries of all indexes together; beyond it the oldest are forgotten. None: no limit."""
    in_memory_each: int = 8_192
    """Maximum unsaved entries of one index. The limit is lower if many indexes share `in_memory`."""
    in_memory: int = 65_536
    """Unsaved entries that all indexes share. With very many indexes, each still gets a small minimum."""

    @property
    def run_span_ms(self) -> int | None:
        """Return the maximum age difference between the entries of one run.

        It is limited because a run can only be forgotten as a whole.
        """
        return None if self.window_ms is None else self.window_ms // _AGES


class HasAge(Protocol):
    @property
    def newest_ms(self) -> int: ...


class Evictable(Protocol):
    """The part of an index that the budget uses."""

    @property
    def runs(self) -> tuple[HasAge, ...]: ...

    def __len__(self) -> int: ...

    def forget_oldest(self) -> None: ...


class RunBudget:
    """Counts the entries of all joined indexes. Invariant: `known` is the sum of their lengths."""

    def __init__(self, limits: RunLimits) -> None:
        self.known = 0
        self._limits = limits
        self._indexes: dict[Evictable, None] = {}

    @property
    def in_memory_max(self) -> int:
        """Number of unsaved entries at which an index is saved."""
        share = self._limits.in_memory // max(1, len(self._indexes))
        return min(self._limits.in_memory_each, max(_IN_MEMORY_EACH_MIN, share))

    @property
    def unsaved_max(self) -> int:
        """Maximum number of unsaved entries of an index while saves fail."""
        return _UNSAVED * self.in_memory_max

    def join(self, index: Evictable) -> None:
        self._indexes[index] = None
        self.known += len(index)

    def leave(self, index: Evictable) -> None:
        if index in self._indexes:
            del self._indexes[index]
            self.known -= len(index)
            assert self._indexes or not self.known, "each entry is counted when it is added and when it is removed"

    def changed(self, by: int) -> None:
        """Add `by` to the number of entries, because an index has changed."""
        self.known += by

    def trim(self) -> None:
        """Forget the oldest runs of all indexes until the number of entries is within the limit."""
        most = self._limits.most
        while most is not None and self.known > most:
            aged = [index for index in self._indexes if index.runs]
            if not aged:
                return
            min(aged, key=lambda index: index.runs[0].newest_ms).forget_oldest()
