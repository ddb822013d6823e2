"""How many ids a broker knows, and for how long."""

from typing import NamedTuple, Protocol

WINDOW_MS = 24 * 3600 * 1000
PER_BROKER_MAX = 10_000_000

_IN_MEMORY_MAX = 65_536
_IN_MEMORY_EACH_MAX = 8_192
_IN_MEMORY_EACH_MIN = 256
_UNSAVED = 4
"""So many times as many may wait in memory while the disk fails; then the oldest of them go."""


class IdLimits(NamedTuple):
    window_ms: int = WINDOW_MS
    most: int = PER_BROKER_MAX
    in_memory_each: int = _IN_MEMORY_EACH_MAX
    """Of one partition, before they are saved; fewer where many partitions know some."""


class HasAge(Protocol):
    @property
    def newest_ms(self) -> int: ...


class Evictable(Protocol):
    """An index, as the budget sees it."""

    @property
    def runs(self) -> tuple[HasAge, ...]: ...

    def __len__(self) -> int: ...

    def forget_oldest(self) -> None: ...


class IdBudget:
    """What all partitions of a broker know together."""

    def __init__(self, limits: IdLimits) -> None:
        self.known = 0
        self._limits = limits
        self._indexes: dict[Evictable, None] = {}

    @property
    def in_memory_max(self) -> int:
        """How many a partition may have in memory before they are saved."""
        share = _IN_MEMORY_MAX // max(1, len(self._indexes))
        return min(self._limits.in_memory_each, max(_IN_MEMORY_EACH_MIN, share))

    @property
    def unsaved_max(self) -> int:
        """How many a partition may have in memory whatever happens."""
        return _UNSAVED * self.in_memory_max

    def join(self, index: Evictable) -> None:
        self._indexes[index] = None
        self.known += len(index)

    def leave(self, index: Evictable) -> None:
        if index in self._indexes:
            del self._indexes[index]
            self.known -= len(index)

    def trim(self) -> None:
        """Forget the oldest, whosever they are, until no more are known than may be."""
        while self.known > self._limits.most:
            aged = [index for index in self._indexes if index.runs]
            if not aged:
                return
            min(aged, key=lambda index: index.runs[0].newest_ms).forget_oldest()
