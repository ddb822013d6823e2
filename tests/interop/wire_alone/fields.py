"""Encodes and decodes messages in Kafka's flexible encoding.

A kind is a letter of `struct` (one number), "str", "bytes" or "uuid" (texts and bytes may be None), `[kind]` for an
array, `{name: kind, ...}` for a struct, or `({...},)` for a struct that may be None.
"""

import struct
from typing import Any

Kind = Any


def varint(number: int) -> bytes:
    """Encode a varint: seven bits per byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(kind: Kind, value: Any) -> bytes:
    if isinstance(kind, dict):
        return b"".join(encode(each, value[name]) for name, each in kind.items()) + b"\0"  # No tagged fields.
    if isinstance(kind, tuple):
        return b"\xff" if value is None else b"\x01" + encode(kind[0], value)
    if isinstance(kind, list):
        return varint(0) if value is None else varint(len(value) + 1) + b"".join(encode(kind[0], one) for one in value)
    if kind in ("str", "bytes"):
        data = value.encode() if isinstance(value, str) else value
        return varint(0) if data is None else varint(len(data) + 1) + data
    return value if kind == "uuid" else struct.pack(">" + kind, value)


class Source:
    """Decodes fields from bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size_bytes: int) -> bytes:
        piece = self.data[self.at : self.at + size_bytes]
        assert len(piece) == size_bytes, "the message ends too early"
        self.at += size_bytes
        return piece

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def zigzag(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def number(self, letter: str) -> int:
        found: int = struct.unpack(">" + letter, self.take(struct.calcsize(">" + letter)))[0]
        return found

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def value(self, kind: Kind) -> Any:
        if isinstance(kind, dict):
            found = {name: self.value(each) for name, each in kind.items()}
            self.skip_tags()
            return found
        if isinstance(kind, tuple):
            return self.value(kind[0]) if self.number("b") > 0 else None
        if kind == "uuid":
            return self.take(16)
        if not isinstance(kind, list) and kind not in ("str", "bytes"):
            return self.number(kind)
        length = self.varint() - 1
        if length < 0:
            return None
        if isinstance(kind, list):
            return [self.value(kind[0]) for _ in range(length)]
        data = self.take(length)
        return data.decode() if kind == "str" else data
