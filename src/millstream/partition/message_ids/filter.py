"""A filter of keys (a Bloom filter): says "surely not" or "perhaps", from memory, of keys that are on disk.

Ten bits a key and six looks: of a hundred keys that are not there, about one is said to be there perhaps. Keys are
digests, evenly spread already, so their own bytes decide where to look.
"""

import struct
from collections.abc import Iterable

_HALVES = struct.Struct(">QQ")
_BITS_PER_KEY = 10
_LOOKS = 6


def filter_bytes(keys: int) -> int:
    """How large a filter for so many keys is."""
    return max(8, keys * _BITS_PER_KEY // 8 + 1)


class BloomFilter:
    __slots__ = ("_bits", "data")

    def __init__(self, data: bytearray | bytes) -> None:
        self.data = data
        self._bits = len(data) * 8

    @classmethod
    def empty(cls, keys: int) -> "BloomFilter":
        """One with room for so many keys."""
        return cls(bytearray(filter_bytes(keys)))

    def add(self, keys: Iterable[bytes]) -> None:
        data, bits = self.data, self._bits
        assert isinstance(data, bytearray), "only a new filter is added to"
        for key in keys:
            at, step = _HALVES.unpack(key)
            for _ in range(_LOOKS):
                place = at % bits
                data[place >> 3] |= 1 << (place & 7)
                at += step | 1

    def may_have(self, key: bytes) -> bool:
        data, bits = self.data, self._bits
        at, step = _HALVES.unpack(key)
        for _ in range(_LOOKS):
            place = at % bits
            if not data[place >> 3] >> (place & 7) & 1:
                return False
            at += step | 1
        return True
