"""Defines the message that a consumer returns.

The source also runs as plain Python, like the codec (`record_decoder`). Compiled, the codec sets the fields in C, and
Python numbers are created only on access.
"""

# mypy: allow-untyped-decorators

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import GenericAlias
from typing import Any

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from millstream.records import _uncompiled as cython

if cython.compiled:
    from cython.cimports.millstream.records._python import show_field

from millstream.model.message_id import ID_HEADER, MadeId
from millstream.records.record import RecordHeader

COMPILED: bool = cython.compiled

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cython.freelist(10_000)  # Keeps the memory of this many messages for reuse; few callers hold more at once.
@cython.no_gc
@cython.final
@cython.cclass
class Message:
    """One message as a consumer returns it: topic, partition, offset, timestamp, key, value and headers.

    Type checkers read message.pyi, where the class has the type of its values as a parameter.

    A message is immutable. It otherwise behaves like the tuple of its fields: it can be unpacked, sliced, compared with
    another message or a tuple, hashed if its value can be hashed, and pickled. Compiled, the garbage collector does not
    track it. A custom value must not refer back to its message, because neither of them would be freed.
    """

    __slots__ = ("_headers", "_key", "_made", "_offset", "_partition", "_timestamp", "_topic", "_value")
    __match_args__ = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: Any,
        headers: tuple[RecordHeader, ...] = (),
        made: tuple[int, int, int, int] | None = None,
    ) -> None:
        """`made` describes the made ids of its batch: producer id, epoch, first sequence number, first offset."""
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._timestamp = timestamp
        self._key = key
        self._value = value
        self._headers = headers
        self._made = made

    @classmethod
    def __class_getitem__(cls, value_type: Any) -> GenericAlias:
        """Return the class with the type of its values, for annotations: `Message[Order]`."""
        return GenericAlias(cls, (value_type,))

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self._topic

    @property
    def partition(self) -> int:
        """The partition of the message."""
        return self._partition

    @property
    def offset(self) -> int:
        """The offset of the message in its partition."""
        return self._offset

    @property
    def timestamp(self) -> int:
        """The timestamp in milliseconds since 1970."""
        return self._timestamp

    @property
    def key(self) -> bytes | None:
        """The key, which usually decides the partition, or None."""
        return self._key

    @property
    def value(self) -> Any:
        """The value: bytes, or the decoded object if the consumer has a value format. None for a null value."""
        return self._value

    @property
    def headers(self) -> tuple[RecordHeader, ...]:
        """The headers as pairs of key and value, in the order of the producer."""
        return self._headers

    @property
    def time(self) -> datetime:
        """The timestamp as a datetime in UTC. Times outside the years 1 to 9999 give the nearest possible datetime."""
        try:
            return _EPOCH + timedelta(milliseconds=self._timestamp)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC) if self._timestamp > 0 else datetime.min.replace(tzinfo=UTC)

    @property
    def message_id(self) -> bytes | None:
        """The id under which the message is stored, natural or made. The producer's receipt has the same id.

        The result is None for messages of producers without message ids.
        """
        for key, value in self._headers:
            if key == ID_HEADER:
                return value
        if self._made is None:
            return None
        producer_id, epoch, base_sequence, base_offset = self._made
        return MadeId(producer_id, epoch, self._partition, base_sequence, self._offset - base_offset).encode()

    def with_value(self, value: Any) -> Message:
        """Return a copy of the message with another value."""
        return Message(
            self._topic, self._partition, self._offset, self._timestamp, self._key, value, self._headers, self._made
        )

    def _fields(self) -> tuple[Any, ...]:
        return (
            self._topic,
            self._partition,
            self._offset,
            self._timestamp,
            self._key,
            self._value,
            self._headers,
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fields())

    def __len__(self) -> int:
        return 7

    def __getitem__(self, place: int | slice) -> Any:
        return self._fields()[place]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Message, tuple)):
            return self._fields() == tuple(other)
        return NotImplemented

    def __lt__(self, other: Message) -> bool:
        return self._fields() < tuple(other)

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        fields = zip(Message.__match_args__, self._fields(), strict=True)
        return f"Message({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __reduce__(self) -> tuple[type[Message], tuple[Any, ...]]:
        return Message, (*self._fields(), self._made)


@cython.cfunc
def _show_fields(message: Message) -> None:
    """Expose fields that are objects as slots, which the interpreter reads faster than properties.

    They are stored before and after the two numbers, eight bytes each.
    """
    place: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, cython.address(message._offset)) - cython.cast(
        cython.Py_ssize_t, cython.cast(cython.p_void, message)
    )
    show_field(Message, b"topic", place - 16)
    show_field(Message, b"partition", place - 8)
    show_field(Message, b"key", place + 16)
    show_field(Message, b"value", place + 24)
    show_field(Message, b"headers", place + 32)


if cython.compiled and cython.sizeof(cython.p_void) == 8:
    _show_fields(Message("", 0, 0, 0, None, None))
