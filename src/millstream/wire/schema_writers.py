"""Compiles schemas into writers: functions that append an encoded value to a bytearray.

A structure is encoded from a dictionary. Missing fields get their default. A field that no version of the schema has is
a programming error and raises KeyError. A field that only this version lacks is ignored, so that one dictionary serves
all versions.

A writer can report the error codes that it writes (see `millstream.wire.error_counts`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.wire.error_counts import CountError
from millstream.wire.frame_reader import FLOAT64, INT8, INT16, INT32, INT64, UINT16, UINT32
from millstream.wire.schema import Schema, SchemaField
from millstream.wire.value_writers import put_count, put_data, put_string, put_uuid, unsigned_varint

Write = Callable[[bytearray, Any], None]

_ERROR_FIELD = "error_code"


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


class _Form(NamedTuple):
    """The parameters that all fields of a message share."""

    version: int
    flexible: bool
    count_error: CountError | None


def compile_writer(schema: Schema, version: int, count_error: CountError | None = None) -> Write:
    """Return a function that appends one whole message of this version, without its header.

    `count_error` is called with each error code other than 0 that is written.
    """
    return _struct(schema.fields, _Form(version, version in schema.flexible, count_error))


def compile_element_writer(
    schema: Schema, path: tuple[str, ...], version: int, count_error: CountError | None = None
) -> Write:
    """Return a function that appends one element of the array at `path`, field names from the outermost inwards."""
    fields = schema.fields
    for name in path:
        fields = next(field.fields for field in fields if field.name == name)
    return _struct(fields, _Form(version, version in schema.flexible, count_error))


def _struct(fields: tuple[SchemaField, ...], form: _Form) -> Write:
    version, flexible = form.version, form.flexible
    known = frozenset(field.name for field in fields)
    present = [field for field in fields if version in field.versions]
    steps = [(field.name, field.default, _value(field, form)) for field in present if not field.is_tagged(version)]
    tagged = sorted(
        (field.tag, field.name, field.default, _value(field, form))
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


def _value(field: SchemaField, form: _Form) -> Write:
    nullable = form.version in field.nullable
    if field.is_array:
        return _array(field, form, nullable)
    if field.kind == "struct":
        return _single_struct(field, form, nullable)
    if field.name == _ERROR_FIELD and form.count_error is not None:
        return _error_code(form.count_error)
    return _simple(field, form.flexible, nullable)


def _error_code(count_error: CountError) -> Write:
    pack = INT16.pack

    def write(out: bytearray, value: int) -> None:
        out.extend(pack(value))
        if value:
            count_error(value)

    return write


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


def _single_struct(field: SchemaField, form: _Form, nullable: bool) -> Write:
    inner = _struct(field.fields, form)
    if not nullable:
        return inner

    def write(out: bytearray, value: Any) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            inner(out, value)

    return write


def _array(field: SchemaField, form: _Form, nullable: bool) -> Write:
    flexible = form.flexible
    element = _struct(field.fields, form) if field.kind == "struct" else _simple(field, flexible, nullable=False)
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
