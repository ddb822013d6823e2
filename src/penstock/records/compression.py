"""Compression of a batch's records, and its undoing within bounds."""

from enum import IntEnum
from typing import Self

from penstock.records.header import Bytes


class Compression(IntEnum):
    """The number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Self:
        """By its name in settings; ValueError names those that exist."""
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(each.name.lower() for each in cls)
            raise ValueError(f"unknown compression {name!r}; there are {known}") from None


def compress(compression: Compression, data: Bytes, level: int | None) -> Bytes:
    raise NotImplementedError


def decompress(compression: Compression, data: Bytes, limit_bytes: int) -> Bytes:
    if compression is Compression.NONE:
        return data
    raise NotImplementedError
