"""Compiles schemas into writers: functions that append an encoded value to a bytearray.

A structure is encoded from a dictionary. Missing fields get their default. A field that no version of the schema has is
a programming error and raises KeyError. A field that only this version lacks is ignored, so that one dictionary serves
all versions.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.wire.frame_reader import FLOAT64, INT8, INT16, INT32, INT64, UINT16, UINT32
from millstream.wire.schema import Schema, SchemaField
from millstream.wire.value_writers import put_count, put_data, put_string, put_uuid, unsigned_varint

Write = Callable[[bytearray, Any], None]


class EncodedArray(NamedTuple):
    """Array elements that are already encoded (see `compile_element_writer`), to be used instead of a list."""

    elements: int
    data: bytes | bytearray


_LAYOUTS = {
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "uint32": UINT32,
    "int64": INT64,
    "float64": FLOAT64,
}


def compile_writer(schema: Schema, version: int) -> Write:
    """Return a function that appends one whole message of this version, without its header."""
    return _struct(schema.fields, version, version in schema.flexible)


def compile_element_writer(schema: Schema, path: tuple[str, ...], version: int) -> Write:
    """Return a function that appends one element of the array at `path`, field names from the outermost inwards."""
    fields = schema.fields
    for name in path:
        fields = next(field.fields for field in fields if field.name == name)
    return _struct(fields, version, version in schema.flexible)


def _struct(fields: tuple[SchemaField, ...], version: int, flexible: bool) -> Write:
    known = frozenset(field.name for field in fields)
    present = [field for field in fields if version in field.versions]
    steps = [
        (field.name, field.default, _value(field, version, flexible))
        for field in present
        if not field.is_tagged(version)
    ]
    tagged = sorted(
        (field.tag, field.name, field.default, _value(field, version, flexible))
        for field in present
        if field.tag is not None and field.is_tagged(version)
    )

    def write(out: bytearray, values: dict[str, Any]) -> None:
        if not values.keys() <= known:
            raise KeyError(f"unknown fields: {sorted(values.keys() - known)}")
        for name, default, step in steps:
            step(out, values.get(name, default))
        if tagged:
            _put_tagged(out, values, tagged)
        elif flexible:
            out.append(0)

    return write


def _put_tagged(out: bytearray, values: dict[str, Any], tagged: Sequence[tuple[int, str, Any, Write]]) -> None:
    """Append the tagged fields that differ from their default, in the order of their tags."""
    chosen = []
    for tag, name, default, step in tagged:
        value = values.get(name, default)
        if value is default or value == default or (default == () and not value):
            continue
        inner = bytearray()
        step(inner, value)
        chosen.append((tag, inner))
    out += unsigned_varint(len(chosen))
    for tag, inner in chosen:
        out += unsigned_varint(tag) + unsigned_varint(len(inner))
        out += inner


def _value(field: SchemaField, version: int, flexible: bool) -> Write:
    nullable = version in field.nullable
    if field.is_array:
        return _array(field, version, flexible, nullable)
    if field.kind == "struct":
        return _single_struct(field, version, flexible, nullable)
    return _simple(field, flexible, nullable)


def _simple(field: SchemaField, flexible: bool, nullable: bool) -> Write:
    name = field.name
    if field.kind in _LAYOUTS:
        pack = _LAYOUTS[field.kind].pack
        return lambda out, value: out.extend(pack(value))
    if field.kind == "bool":
        return lambda out, value: out.append(1 if value else 0)
    if field.kind == "uuid":
        return put_uuid
    put: Callable[[bytearray, Any, bool], None] = put_string if field.kind == "string" else put_data

    def write(out: bytearray, value: Any) -> None:
        if value is None and not nullable:
            raise ValueError(f"{name} is null")
        put(out, value, flexible)

    return write


def _single_struct(field: SchemaField, version: int, flexible: bool, nullable: bool) -> Write:
    inner = _struct(field.fields, version, flexible)
    if not nullable:
        return inner

    def write(out: bytearray, value: Any) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            inner(out, value)

    return write


def _array(field: SchemaField, version: int, flexible: bool, nullable: bool) -> Write:
    if field.kind == "struct":
        element = _struct(field.fields, version, flexible)
    else:
        element = _simple(field, flexible, nullable=False)
    name = field.name

    def write(out: bytearray, values: Sequence[Any] | EncodedArray | None) -> None:
        if values is None:
            if not nullable:
                raise ValueError(f"{name} is null")
            put_count(out, -1, flexible)
            return
        if isinstance(values, EncodedArray):
            put_count(out, values.elements, flexible)
            out += values.data
            return
        put_count(out, len(values), flexible)
        for value in values:
            element(out, value)

    return write
