"""Reads single values from a frame, and checks every length against the remaining bytes before it is used.

Invariant: `0 <= position <= end == len(buffer)`. A read beyond the end raises MalformedMessageError and allocates
nothing. `elements_left` limits the array elements and tags of a whole message, which bounds the time of decoding it.
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
"""Maximum length of an unsigned varint of 32 bits."""

_UUIDS_KEPT = 4096


@lru_cache(_UUIDS_KEPT)
def as_uuid(data: bytes) -> UUID:
    """Convert bytes to a UUID, with a cache: requests repeat the same few topic ids, and the conversion is slow."""
    return UUID(bytes=data)


class FrameReader:
    """A frame and the position up to which it has been read."""

    __slots__ = ("_elements_max", "buffer", "elements_left", "end", "position")

    def __init__(self, buffer: memoryview, position: int, *, elements_max: int) -> None:
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
        # Inlined for speed, like `unsigned_varint`: requests consist mostly of these two.
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
        raise MalformedMessageError(f"the varint at byte {self.position} is longer than 32 bits")

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes without copying them."""
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
            raise MalformedMessageError(f"the string before byte {self.position} is not UTF-8") from None

    def data(self, compact: bool) -> memoryview | None:
        """Read a bytes field without copying it. Returns None for null."""
        size = self.unsigned_varint() - 1 if compact else self.int32()
        return None if size == -1 else self.take(size)

    def count(self, compact: bool, element_bytes_min: int) -> int:
        """Read the element count of an array, or -1 for null. The count is checked against the remaining bytes."""
        count = self.unsigned_varint() - 1 if compact else self.int32()
        if count <= 0:
            if count < -1:
                raise MalformedMessageError(f"the array before byte {self.position} has a count of {count}")
            return count
        if count * element_bytes_min > self.end - self.position:
            raise MalformedMessageError(
                f"an array of {count} elements does not fit into the remaining {self.end - self.position} bytes"
            )
        self.spend(count)
        return count

    def spend(self, elements: int) -> None:
        """Count elements towards the limit of the message."""
        self.elements_left -= elements
        if self.elements_left < 0:
            raise MalformedMessageError(f"the message has more than {self._elements_max} elements")

    def skip_tags(self) -> None:
        """Skip all tagged fields."""
        if self.position < self.end and self.buffer[self.position] == 0:
            self.position += 1
            return
        for _tag in self.tags():
            pass

    def tags(self) -> "_Tags":
        """Iterate over tagged fields: yield the tag and the end of its value, with `position` at the value.

        The caller must read the value exactly to its end, or not at all to skip it.
        """
        return _Tags(self)

    def finish(self) -> None:
        """Raise MalformedMessageError unless the whole frame has been read."""
        assert self.position <= self.end, "no read goes beyond the end"
        if self.position != self.end:
            raise MalformedMessageError(f"{self.end - self.position} bytes follow the end of the message")

    def too_short(self, size: int) -> MalformedMessageError:
        left = self.end - self.position
        return MalformedMessageError(f"the message needs {size} bytes at byte {self.position}, but only {left} remain")


class _Tags:
    """Iterates over the tagged fields at the source's position. Their tags must ascend, as the protocol requires."""

    def __init__(self, source: FrameReader) -> None:
        self._source = source
        self._left = source.unsigned_varint()
        if self._left:
            if self._left * 2 > source.end - source.position:
                raise MalformedMessageError(f"{self._left} tagged fields do not fit into the remaining bytes")
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
            raise MalformedMessageError(f"tagged field {self._last} does not have its announced length")
        if not self._left:
            raise StopIteration
        self._left -= 1
        tag = source.unsigned_varint()
        if tag <= self._last:
            raise MalformedMessageError(f"tagged field {tag} follows tagged field {self._last}; tags must ascend")
        self._last = tag
        size = source.unsigned_varint()
        if size > source.end - source.position:
            raise source.too_short(size)
        self._value_start = source.position
        self._value_end = source.position + size
        return tag, self._value_end
