"""A record as people and programs see it, taken out of its batch."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

RecordHeader = tuple[str, bytes | None]
"""A header's key and value; keys may repeat, and their order is kept."""

ID_HEADER = "penstock.id"
"""The header that carries the id under which its writer stored a message."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Record(NamedTuple):
    """One message with its place and its time; a null key or value is None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()


class Message(NamedTuple):
    """One message as a consumer hands it out: where it lies, when it was written, and what it says.

    `timestamp` is in milliseconds since 1970. `value` is bytes, or what the consumer was told to make of them; a null
    key or value is None.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: Any
    headers: tuple[RecordHeader, ...] = ()

    @property
    def time(self) -> datetime:
        """The timestamp, in UTC; the nearest that a `datetime` can hold for one beyond the year 9999 or before 1."""
        try:
            return _EPOCH + timedelta(milliseconds=self.timestamp)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC) if self.timestamp > 0 else datetime.min.replace(tzinfo=UTC)

    @property
    def message_id(self) -> bytes | None:
        """The id under which its writer stored it; None where the writer gave none."""
        for key, value in self.headers:
            if key == ID_HEADER:
                return value
        return None
