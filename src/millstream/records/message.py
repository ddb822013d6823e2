"""A message as a consumer hands it out.

One source, two lives, as the codec (`record_decoder`): compiled, the codec sets the fields in C, and numbers are made
when somebody asks for them.
"""

# mypy: allow-untyped-decorators

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
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


@cython.freelist(10_000)  # The memory of so many is kept for the next: few callers take more at once.
@cython.no_gc
@cython.final
@cython.cclass
class Message:
    """One message as a consumer hands it out: where it lies, when it was written, and what it says.

    It cannot be changed, and otherwise behaves as the tuple of its fields: it can be unpacked, sliced, compared with
    another and with a tuple, hashed where its value can be, and pickled. Compiled, the garbage collector does not know
    it: a value of the user's own must not refer back to its message, or both stay.
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
        """`made` is what the made ids of its batch name: producer, epoch, first sequence; and its first offset."""
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._timestamp = timestamp
        self._key = key
        self._value = value
        self._headers = headers
        self._made = made

    @property
    def topic(self) -> str:
        """Of which topic it is."""
        return self._topic

    @property
    def partition(self) -> int:
        """In which of the topic's partitions it lies."""
        return self._partition

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self._offset

    @property
    def timestamp(self) -> int:
        """When it was written, in milliseconds since 1970."""
        return self._timestamp

    @property
    def key(self) -> bytes | None:
        """What decides its partition; None where it has none."""
        return self._key

    @property
    def value(self) -> Any:
        """What it says: bytes, or what the consumer was told to make of them; None for a null value."""
        return self._value

    @property
    def headers(self) -> tuple[RecordHeader, ...]:
        """Names and values that travel with it, in the order of its writer."""
        return self._headers

    @property
    def time(self) -> datetime:
        """The timestamp, in UTC; the nearest that a `datetime` can hold for one beyond the year 9999 or before 1."""
        try:
            return _EPOCH + timedelta(milliseconds=self._timestamp)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC) if self._timestamp > 0 else datetime.min.replace(tzinfo=UTC)

    @property
    def message_id(self) -> bytes | None:
        """The id under which it was stored, its writer's own or a made one: that of the receipt. None for messages of
        clients that know no ids."""
        for key, value in self._headers:
            if key == ID_HEADER:
                return value
        if self._made is None:
            return None
        producer_id, epoch, base_sequence, base_offset = self._made
        return MadeId(producer_id, epoch, self._partition, base_sequence, self._offset - base_offset).encode()

    def with_value(self, value: Any) -> Message:
        """The same message with another value."""
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
    """Fields that are objects, shown as slots: the interpreter reads those itself, and calls a property.

    They lie before and behind the two numbers, eight bytes each.
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
