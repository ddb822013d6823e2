"""Decodes Avro values, one datum each, with fastavro: in C, but through Python objects, one value at a time.

Dates and times are read as numbers, and Arrow's cast gives them their types.
"""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pyarrow as pa

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.values.options import AvroFraming

_PRIMITIVE: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_WIDER = ({"int", "long"}, {"float", "double"})
_DECIMAL_DIGITS_MAX = 38
_SINGLE_OBJECT = b"\xc3\x01"
_CONFLUENT = b"\0"
_CONFLUENT_HEADER_BYTES = 5

_failures = (ArithmeticError, EOFError, LookupError, MemoryError, TypeError, UnicodeError, ValueError)
"""Exceptions that fastavro raises for bytes that do not match the schema."""


class AvroSchema:
    """A parsed schema. Raises INVALID_SETTING, with the reason, for a schema that cannot be mapped to columns."""

    def __init__(self, text: str) -> None:
        schema = _fastavro().schema
        try:
            parsed = json.loads(text)
            self.fingerprint = bytes.fromhex(
                schema.fingerprint(schema.to_parsing_canonical_form(parsed), "CRC-64-AVRO")
            )
            self.plain = schema.parse_schema(_plain(parsed))
        except (KeyError, TypeError, ValueError, schema.SchemaParseException, schema.UnknownType) as error:
            raise _unfit(f"not an Avro schema: {error!r}") from None
        try:
            self.type: pa.StructType = _arrow_type(schema.expand_schema(parsed))
        except ValueError as error:
            raise _unfit(str(error)) from None
        if not pa.types.is_struct(self.type):
            raise _unfit(f"the schema must be a record, whose fields are columns, not {self.type}")


def _unfit(why: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_SETTING, f"option valueSchema: {why}")


class AvroDecoder:
    """Decodes Avro values: checks the framing, then reads the datum."""

    def __init__(self, schema: AvroSchema, wanted: pa.StructType, framing: AvroFraming) -> None:
        self.type = wanted
        self._read = _fastavro().schemaless_reader
        self._schema = schema.plain
        self._prefix, self._header_bytes = {
            AvroFraming.PLAIN: (b"", 0),
            AvroFraming.SINGLE_OBJECT: (_SINGLE_OBJECT + schema.fingerprint, 10),
            AvroFraming.CONFLUENT: (_CONFLUENT, _CONFLUENT_HEADER_BYTES),
        }[framing]
        self._given = pa.struct([field for field in schema.type if wanted.get_field_index(field.name) >= 0])

    def decode(self, values: pa.Array) -> tuple[pa.StructArray, None]:
        rows = [None if value is None else self._record(value) for value in values.to_pylist()]
        return pa.array(rows, self._given).cast(self.type), None

    def _record(self, value: bytes) -> Any:
        if not value.startswith(self._prefix):
            begin = value[: len(self._prefix)].hex(" ") or "nothing"
            raise ValueError(f"it begins with {begin} instead of {self._prefix.hex(' ')}")
        stream = BytesIO(value)
        stream.seek(self._header_bytes)
        try:
            record = self._read(stream, self._schema, None)
        except _failures as error:
            raise ValueError(f"it does not match the schema: {str(error) or 'it ends too early'}") from None
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left after the datum; it has another schema")
        return record


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.schema
    except ImportError:
        text = "valueFormat=avro needs fastavro: pip install 'millstream[spark]'"
        raise MillstreamError(ErrorCode.NOT_INSTALLED, text) from None
    return fastavro


def _arrow_type(parsed: Any) -> pa.DataType:
    if isinstance(parsed, list):
        return _union(parsed)
    kind = parsed["type"] if isinstance(parsed, dict) else parsed
    if isinstance(kind, dict | list):
        return _arrow_type(kind)
    if kind == "record":
        return pa.struct([(field["name"], _arrow_type(field["type"])) for field in parsed["fields"]])
    if kind == "array":
        return pa.list_(_arrow_type(parsed["items"]))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_type(parsed["values"]))
    if kind not in _PRIMITIVE:
        raise ValueError(f"{kind} is a recursive type, which no column can have")
    logical = parsed.get("logicalType") if isinstance(parsed, dict) else None
    if logical == "decimal":
        return _decimal(parsed.get("precision"), parsed.get("scale", 0))
    return _LOGICAL.get((kind, str(logical)), _PRIMITIVE[kind])


def _decimal(precision: Any, scale: Any) -> pa.DataType:
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        raise ValueError(f"a decimal of precision {precision} and scale {scale} is invalid")
    if not 0 < precision <= _DECIMAL_DIGITS_MAX:
        raise ValueError(f"a decimal of {precision} digits is too long (maximum: {_DECIMAL_DIGITS_MAX})")
    return pa.decimal128(precision, scale)


def _union(branches: list[Any]) -> pa.DataType:
    kinds = [each for each in branches if each != "null"]
    if len(kinds) == 1:
        return _arrow_type(kinds[0])
    for wider in _WIDER:
        if kinds and all(each in wider for each in kinds):
            return _PRIMITIVE[max(kinds, key=("int", "long", "float", "double").index)]
    names = [each.get("name", each.get("type")) if isinstance(each, dict) else each for each in branches]
    raise ValueError(f"a union of {', '.join(map(str, names))} has no common type for a column")


def _plain(parsed: Any) -> Any:
    """Returns the schema without logical types except decimal: Arrow converts dates and times, fastavro decimals."""
    if isinstance(parsed, list):
        return [_plain(each) for each in parsed]
    if not isinstance(parsed, dict):
        return parsed
    kept = {name: each for name, each in parsed.items() if name != "logicalType" or each == "decimal"}
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _plain(kept[name])
    if "fields" in kept:
        kept["fields"] = [{**field, "type": _plain(field["type"])} for field in kept["fields"]]
    return kept
