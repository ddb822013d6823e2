"""Reading single values out of a frame, with every length checked against what is left before anything is made of it.

Invariant: `0 <= position <= end == len(buffer)`; a read that would go beyond the end raises MalformedMessageError and
leaves nothing allocated. `elements_left` bounds how many array elements and tags one message may have in all, so that
the time a message takes is bounded before it is spent.
"""

from functools import lru_cache
from struct import Struct, error
from uuid import UUID

from millstream.wire.malformed import MalformedMessageError

INT8 = Struct(">b")
INT16 = Struct(">h")
UINT16 = Struct(">H")
INT32 = Struct(">i")
UINT32 = Struct(">I")
INT64 = Struct(">q")
FLOAT64 = Struct(">d")

_unpack_int32 = INT32.unpack_from

VARINT_BYTES_MAX = 5
"""An unsigned varint of 32 bits never needs more."""

_UUIDS_KEPT = 4096


@lru_cache(_UUIDS_KEPT)
def as_uuid(data: bytes) -> UUID:
    """Topic ids come with every request, always the same few; making an id from bytes is slow."""
    return UUID(bytes=data)


class FrameReader:
    """A frame and how far it has been read."""

    __slots__ = ("_elements_max", "buffer", "elements_left", "end", "position")

    def __init__(self, buffer: memoryview, position: int, elements_max: int) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        self.elements_left = self._elements_max = elements_max

    def int8(self) -> int:
        return self._fixed(INT8)

    def int16(self) -> int:
        return self._fixed(INT16)

    def uint16(self) -> int:
        return self._fixed(UINT16)

    def int32(self) -> int:
        # Written out, like `unsigned_varint`: these two are most of what requests consist of.
        position = self.position
        try:
            value: int = _unpack_int32(self.buffer, position)[0]
        except error:
            raise self.too_short(4) from None
        self.position = position + 4
        return value

    def uint32(self) -> int:
        return self._fixed(UINT32)

    def int64(self) -> int:
        return self._fixed(INT64)

    def _fixed(self, layout: Struct) -> int:
        try:
            value: int = layout.unpack_from(self.buffer, self.position)[0]
        except error:
            raise self.too_short(layout.size) from None
        self.position += layout.size
        return value

    def float64(self) -> float:
        try:
            value: float = FLOAT64.unpack_from(self.buffer, self.position)[0]
        except error:
            raise self.too_short(8) from None
        self.position += 8
        return value

    def boolean(self) -> bool:
        return self.int8() != 0

    def uuid(self) -> UUID:
        return as_uuid(bytes(self.take(16)))

    def unsigned_varint(self) -> int:
        position = self.position
        if position < self.end:
            byte = self.buffer[position]
            if byte < 0x80:
                self.position = position + 1
                return byte
            if position + 1 < self.end:
                high = self.buffer[position + 1]
                if high < 0x80:
                    self.position = position + 2
                    return byte - 0x80 + (high << 7)
        return self._long_varint()

    def _long_varint(self) -> int:
        value = shift = 0
        position = self.position
        for byte in self.buffer[position : position + VARINT_BYTES_MAX]:
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 32:
                    break
                self.position = position
                return value
            shift += 7
        if position == self.end:
            raise self.too_short(1)
        raise MalformedMessageError(f"the variable-length number at byte {self.position} does not end")

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, not copied."""
        position = self.position
        if size < 0 or size > self.end - position:
            raise self.too_short(size)
        self.position = end = position + size
        return self.buffer[position:end]

    def string(self, compact: bool) -> str | None:
        size = self.unsigned_varint() - 1 if compact else self.int16()
        if size == -1:
            return None
        data = self.take(size)
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError:
            raise MalformedMessageError(f"the text before byte {self.position} is not UTF-8") from None

    def data(self, compact: bool) -> memoryview | None:
        """A field of bytes, not copied; None for null."""
        size = self.unsigned_varint() - 1 if compact else self.int32()
        return None if size == -1 else self.take(size)

    def count(self, compact: bool, element_bytes_min: int) -> int:
        """How many elements an array has; -1 for null. Checked against what can still be in the frame."""
        count = self.unsigned_varint() - 1 if compact else self.int32()
        if count <= 0:
            if count < -1:
                raise MalformedMessageError(f"an array of {count} elements before byte {self.position}")
            return count
        if count * element_bytes_min > self.end - self.position:
            raise MalformedMessageError(
                f"an array of {count} elements cannot be in the {self.end - self.position} bytes left"
            )
        self.spend(count)
        return count

    def spend(self, elements: int) -> None:
        """Count elements against the message's limit."""
        self.elements_left -= elements
        if self.elements_left < 0:
            raise MalformedMessageError(f"more than the {self._elements_max} elements that this message may have")

    def skip_tags(self) -> None:
        """Pass over tagged fields that this message does not know."""
        if self.position < self.end and self.buffer[self.position] == 0:
            self.position += 1
            return
        for _tag in self.tags():
            pass

    def tags(self) -> "_Tags":
        """Iterate over tagged fields: yields (tag, end of its value), with the position at its value.

        Whoever reads the value must end exactly at its end; a value that is left alone is passed over.
        """
        return _Tags(self)

    def finish(self) -> None:
        """Raise unless everything has been read."""
        if self.position != self.end:
            raise MalformedMessageError(f"{self.end - self.position} bytes more than the message has")

    def too_short(self, size: int) -> MalformedMessageError:
        left = self.end - self.position
        return MalformedMessageError(f"{size} bytes wanted at byte {self.position}, but only {left} are left")


class _Tags:
    """The tagged fields at the source's position, in the ascending order that the protocol asks for."""

    def __init__(self, source: FrameReader) -> None:
        self._source = source
        self._left = source.unsigned_varint()
        if self._left:
            if self._left * 2 > source.end - source.position:
                raise MalformedMessageError(f"{self._left} tagged fields cannot be in what is left")
            source.spend(self._left)
        self._last = -1
        self._value_end = source.position
        self._value_start = source.position

    def __iter__(self) -> "_Tags":
        return self

    def __next__(self) -> tuple[int, int]:
        source = self._source
        if source.position == self._value_start:
            source.position = self._value_end
        elif source.position != self._value_end:
            raise MalformedMessageError(f"the tagged field {self._last} has another length than it says")
        if not self._left:
            raise StopIteration
        self._left -= 1
        tag = source.unsigned_varint()
        if tag <= self._last:
            raise MalformedMessageError(f"tagged field {tag} comes after {self._last}")
        self._last = tag
        size = source.unsigned_varint()
        if size > source.end - source.position:
            raise source.too_short(size)
        self._value_start = source.position
        self._value_end = source.position + size
        return tag, self._value_end
