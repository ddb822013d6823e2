"""Which partition a message goes to: the Java client's choice, so that clients in other languages meet the same one."""

from typing import Final

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of `data` with the Java client's seed, as an unsigned number."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        mixed = (mixed * _MIX & _MASK) ^ word
    if whole < length:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 13) * _MIX & _MASK
    return mixed ^ mixed >> 15


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a message with this key, in a topic of so many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
