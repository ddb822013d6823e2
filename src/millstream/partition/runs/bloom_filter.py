"""Implements a Bloom filter of a run's keys, which answers "absent" or "possibly present" from memory.

The filter has ten bits per key and tests six bits, so about one percent of absent keys are reported as possibly
present. Keys are digests, which are already evenly distributed, so their own bytes select the bits.
"""

import struct
from collections.abc import Iterable

_HALVES = struct.Struct(">QQ")
_BITS_PER_KEY = 10
_TESTED_BITS = 6


def filter_bytes(keys: int) -> int:
    """Return the size of a filter for this number of keys."""
    return max(8, keys * _BITS_PER_KEY // 8 + 1)


class BloomFilter:
    __slots__ = ("_bits", "data")

    def __init__(self, data: bytearray | bytes) -> None:
        self.data = data
        self._bits = len(data) * 8

    @classmethod
    def empty(cls, keys: int) -> "BloomFilter":
        """Create an empty filter for this number of keys."""
        return cls(bytearray(filter_bytes(keys)))

    def add(self, keys: Iterable[bytes]) -> None:
        data, bits = self.data, self._bits
        assert isinstance(data, bytearray), "keys are added only to a new filter"
        for key in keys:
            at, step = _HALVES.unpack(key)
            for _ in range(_TESTED_BITS):
                bit = at % bits
                data[bit >> 3] |= 1 << (bit & 7)
                at += step | 1

    def may_have(self, key: bytes) -> bool:
        data, bits = self.data, self._bits
        at, step = _HALVES.unpack(key)
        for _ in range(_TESTED_BITS):
            bit = at % bits
            if not data[bit >> 3] >> (bit & 7) & 1:
                return False
            at += step | 1
        return True
