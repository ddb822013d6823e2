"""Compiles schemas into readers: functions that decode a value from a frame, one per message and version.

A structure is decoded to a dictionary. It has all fields of the schema; fields that the version lacks have their
default.
"""

from collections.abc import Callable
from struct import Struct, error
from typing import Any

from millstream.wire.frame_reader import FrameReader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.schema import Schema, SchemaField

Read = Callable[[FrameReader], Any]
Fields = dict[str, Any]

_PLAIN: dict[str, Read] = {
    "int8": FrameReader.int8,
    "int16": FrameReader.int16,
    "uint16": FrameReader.uint16,
    "int32": FrameReader.int32,
    "uint32": FrameReader.uint32,
    "int64": FrameReader.int64,
    "float64": FrameReader.float64,
    "bool": FrameReader.boolean,
    "uuid": FrameReader.uuid,
}
_CODES = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}
_SIZES = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "bool": 1, "uuid": 16}


def compile_reader(schema: Schema, version: int) -> Read:
    """Return a function that decodes one whole message of this version, without its header."""
    return _struct(schema.fields, version, version in schema.flexible)


def _struct(fields: tuple[SchemaField, ...], version: int, flexible: bool) -> Read:
    present = [field for field in fields if version in field.versions]
    tagged = {field.tag: field for field in present if field.is_tagged(version)}
    missing = {field.name: field.default for field in fields if field not in present or field.tag in tagged}
    steps = _steps([field for field in present if not field.is_tagged(version)], version, flexible)
    by_tag = {tag: (field.name, _value(field, version, flexible)) for tag, field in tagged.items() if tag is not None}

    def read(source: FrameReader) -> Fields:
        values: Fields = dict(missing)
        for names, step in steps:
            if type(names) is str:
                values[names] = step(source)
            else:
                values.update(zip(names, step(source), strict=True))
        if flexible:
            if by_tag:
                for tag, end in source.tags():
                    if tag in by_tag:
                        name, read_value = by_tag[tag]
                        values[name] = _tagged(source, end, read_value)
            else:
                source.skip_tags()
        return values

    return read


def _tagged(source: FrameReader, end: int, read_value: Read) -> Any:
    """Decode a tagged value within its announced length, so that it cannot read the bytes after it."""
    outer_end = source.end
    outer, source.buffer, source.end = source.buffer, source.buffer[:end], end
    try:
        value = read_value(source)
    finally:
        source.buffer, source.end = outer, outer_end
    if source.position != end:
        raise MalformedMessageError(f"a tagged field ends at byte {source.position}, not at byte {end} as announced")
    return value


def _steps(fields: list[SchemaField], version: int, flexible: bool) -> list[tuple[str | tuple[str, ...], Read]]:
    """Return the read steps of the fields in order. Consecutive numbers are read in one step."""
    steps: list[tuple[str | tuple[str, ...], Read]] = []
    run: list[SchemaField] = []
    for field in [*fields, None]:
        if field is not None and not field.is_array and field.kind in _CODES:
            run.append(field)
            continue
        if len(run) == 1:
            steps.append((run[0].name, _PLAIN[run[0].kind]))
        elif run:
            steps.append((tuple(each.name for each in run), _numbers(run)))
        run = []
        if field is not None:
            steps.append((field.name, _value(field, version, flexible)))
    return steps


def _numbers(fields: list[SchemaField]) -> Read:
    layout = Struct(">" + "".join(_CODES[field.kind] for field in fields))
    size = layout.size

    def read(source: FrameReader) -> tuple[Any, ...]:
        try:
            values = layout.unpack_from(source.buffer, source.position)
        except error:
            raise source.too_short(size) from None
        source.position += size
        return values

    return read


def _value(field: SchemaField, version: int, flexible: bool) -> Read:
    nullable = version in field.nullable
    if field.is_array:
        return _array(field, version, flexible, nullable)
    if field.kind == "struct":
        return _single_struct(field, version, flexible, nullable)
    return _simple(field, flexible, nullable)


def _simple(field: SchemaField, flexible: bool, nullable: bool) -> Read:
    if field.kind in _PLAIN:
        return _PLAIN[field.kind]
    take = FrameReader.string if field.kind == "string" else FrameReader.data
    name = field.name

    def read(source: FrameReader) -> Any:
        value = take(source, flexible)
        if value is None and not nullable:
            raise MalformedMessageError(f"{name} is null")
        return value

    return read


def _single_struct(field: SchemaField, version: int, flexible: bool, nullable: bool) -> Read:
    inner = _struct(field.fields, version, flexible)
    if not nullable:
        return inner

    def read(source: FrameReader) -> Any:
        return None if source.int8() < 0 else inner(source)

    return read


def _array(field: SchemaField, version: int, flexible: bool, nullable: bool) -> Read:
    if field.kind == "struct":
        element = _struct(field.fields, version, flexible)
    else:
        element = _simple(field, flexible, nullable=False)
    smallest = _smallest(field, version, flexible)
    name = field.name

    def read(source: FrameReader) -> Any:
        count = source.count(flexible, smallest)
        if count < 0:
            if not nullable:
                raise MalformedMessageError(f"{name} is null")
            return None
        return [element(source) for _ in range(count)]

    return read


def _smallest(field: SchemaField, version: int, flexible: bool) -> int:
    """Return the minimum number of bytes of one element of this field."""
    if field.kind in _SIZES:
        return _SIZES[field.kind]
    if field.kind == "string":
        return 1 if flexible else 2
    if field.kind != "struct":
        return 1 if flexible else 4
    size = int(flexible)
    for inner in field.fields:
        if version not in inner.versions or inner.is_tagged(version):
            continue
        if inner.is_array:
            size += 1 if flexible else 4
        elif inner.kind == "struct" and version in inner.nullable:
            size += 1
        else:
            size += _smallest(inner, version, flexible)
    return size
