"""Defines a decoded record."""

from typing import NamedTuple

RecordHeader = tuple[str, bytes | None]
"""A header's key and value; keys may repeat, and their order is kept."""


class Record(NamedTuple):
    """One decoded record with its offset and timestamp. A null key or value is None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()
