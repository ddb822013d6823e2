"""A record as people and programs see it, taken out of its batch."""

from typing import NamedTuple

RecordHeader = tuple[str, bytes | None]
"""A header's key and value; keys may repeat, and their order is kept."""


class Record(NamedTuple):
    """One message with its place and its time; a null key or value is None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()
