"""Implements an immutable mapping whose changed copies share all unchanged buckets.

A change copies one bucket and the tuple of buckets. With 10,000 entries this takes about 1 µs; copying a dict takes 40
µs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, Self, TypeVar

K = TypeVar("K")
V = TypeVar("V")

BUCKETS = 256
_MASK = BUCKETS - 1


class PersistentMap(Generic[K, V]):
    """An immutable mapping without an order, because the hashes of strings differ between processes."""

    __slots__ = ("_buckets",)

    def __init__(self, buckets: Iterable[Mapping[K, V]]) -> None:
        """Builds a map from its buckets. Other code creates maps with `of`, or as changed copies."""
        self._buckets = tuple(buckets)

    @classmethod
    def of(cls, entries: Iterable[tuple[K, V]]) -> Self:
        buckets: list[dict[K, V]] = [{} for _ in range(BUCKETS)]
        for key, value in entries:
            buckets[hash(key) & _MASK][key] = value
        return cls(buckets)

    def get(self, key: K) -> V | None:
        return self._buckets[hash(key) & _MASK].get(key)

    def having(self, key: K, value: V) -> Self:
        """Returns a copy in which `key` has this value."""
        return self._replacing(key, {**self._buckets[hash(key) & _MASK], key: value})

    def without(self, key: K) -> Self:
        """Returns a copy without `key`, which must exist."""
        bucket = dict(self._buckets[hash(key) & _MASK])
        del bucket[key]
        return self._replacing(key, bucket)

    def keys_changed_since(self, older: Self) -> Iterator[K]:
        """Yields the keys that have another value than in `older`, or exist in only one of the two maps. Values are
        compared by identity. Cheap if the two maps share most of their buckets."""
        for now, before in zip(self._buckets, older._buckets, strict=True):
            if now is not before:
                for key in {**before, **now}:
                    if now.get(key) is not before.get(key):
                        yield key

    def _replacing(self, key: K, bucket: Mapping[K, V]) -> Self:
        buckets = list(self._buckets)
        buckets[hash(key) & _MASK] = bucket
        return type(self)(buckets)
