"""Defines the columns of a topic, in Spark's types and in the Arrow types that Spark expects of a source.

A user's schema selects columns; columns that it leaves out are not sent to Spark. With a typed `valueFormat`, the
fields of a value are columns beside the topic's own, or members of the column `value`.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.values.ddl import column_names
from millstream.spark.values.decoding import decode
from millstream.spark.values.options import ValueFormat, ValueOptions, ValueShape
from millstream.spark.values.schemas import Sample, check_fields, decoder_of, fields_of, may_be_null

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Type of each column, in column order. A schema may also declare `key` as string."""
_PLACE = ("topic", "partition", "offset")
_ALWAYS = {*_PLACE, "timestamp"}
"""Columns that are never null. Spark then skips its null checks, which saves a sixth of its cost per row."""
_TIME_MS_MAX = (2**63 - 1) // 1000
_ARROW = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<struct<key:string,value:binary>>": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def source_schema(values: ValueOptions, sample: Sample, *, headers: bool) -> "str | StructType":
    """Returns all columns, with those of the values last.

    The result is a DDL string if the values are untyped or their schema was given as DDL, else a StructType.
    """
    own = {name: kind for name, kind in COLUMNS.items() if headers or name != "headers"}
    if not values.format.is_typed:
        return _ddl(own | {"value": values.format.value})
    del own["value"]
    if values.schema is not None and values.format is not ValueFormat.AVRO:
        # Wrapped into one struct: otherwise Spark's parse error always names the first column.
        if values.shape is ValueShape.STRUCT:
            return f"struct<{_ddl(own)}, value struct<{values.schema}>>"
        _check_apart(column_names(values.schema))
        return f"struct<{_ddl(own)}, {values.schema}>"
    return _own_types(own, fields_of(values, sample), values.shape)


def _ddl(types: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}{' NOT NULL' if name in _ALWAYS else ''}" for name, kind in types.items())


def _own_types(own: dict[str, str], fields: "StructType", shape: ValueShape) -> "StructType":
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    own_fields = [pa.field(name, _ARROW[kind], nullable=name not in _ALWAYS) for name, kind in own.items()]
    found = from_arrow_schema(pa.schema(own_fields))
    if shape is ValueShape.STRUCT:
        return found.add("value", fields)
    _check_apart([field.name for field in fields.fields])
    return StructType([*found.fields, *fields.fields])


def _check_apart(names: list[str]) -> None:
    for name in names:
        if name.lower() in COLUMNS:
            text = (
                f"the values have a field {name}, which is also a column of topics; set valueShape=struct to read the "
                "fields as value.*, or remove the field from valueSchema"
            )
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)


def check_schema(schema: "StructType", values: ValueOptions) -> None:
    """Raises INVALID_SETTING, with the column's name, if topics and their values do not have a column of the schema."""
    for field in schema.fields:
        if field.name in COLUMNS:
            _check_own(field, values)
        elif _fields_in(values) is not ValueShape.COLUMNS:
            text = f"schema: {field.name} is not a column of topics (accepted: {', '.join(COLUMNS)})"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    if values.format.is_typed:
        check_fields(_fields(schema, values), values)


def _fields_in(values: ValueOptions) -> ValueShape | None:
    return values.shape if values.format.is_typed else None


def _check_own(field: "StructField", values: ValueOptions) -> None:
    kind = field.dataType.simpleString()
    allowed = {COLUMNS[field.name]}
    if field.name == "key":
        allowed.add("string")
    elif field.name == "value" and _fields_in(values) is ValueShape.STRUCT:
        allowed = {kind} if kind.startswith("struct<") else {"a struct of fields"}
    elif field.name == "value" and not values.format.is_typed:
        allowed = {values.format.value}
    if kind not in allowed:
        text = f"schema: column {field.name} has type {kind}; accepted: {' or '.join(sorted(allowed))}"
        if field.name == "value":
            text += " (set by the option valueFormat)"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    if field.name not in _ALWAYS and not may_be_null(field):
        text = f"schema: column {field.name}, or a part of it, is NOT NULL, but messages may lack it; remove NOT NULL"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)


def _fields(schema: "StructType", values: ValueOptions) -> "StructType":
    """Returns the fields of the schema that come from the values."""
    from pyspark.sql.types import StructType

    if values.shape is ValueShape.COLUMNS:
        return StructType([field for field in schema.fields if field.name not in COLUMNS])
    for field in schema.fields:
        if field.name == "value" and isinstance(field.dataType, StructType):
            return field.dataType
    return StructType([])


class ArrowColumns:
    """Converts the SDK's record batches to the record batches that Spark expects for a schema.

    It works on whole columns. Only value formats without a columnar parser are decoded row by row.
    """

    def __init__(self, schema: "StructType", values: ValueOptions) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._values = values
        self._fields: list[str] = []
        if values.format.is_typed and (fields := _fields(schema, values)).fields:
            wanted = pa.struct(list(to_arrow_schema(fields, timezone="UTC")))
            self._fields = wanted.names
            self._decoder = decoder_of(values, wanted)

    @property
    def needs(self) -> list[str]:
        """Names of the SDK's columns that the conversion reads.

        With typed values these include topic, partition and offset, because the error for a bad value names them.
        """
        own = [name for name in self._schema.names if name in COLUMNS]
        return [*own, *(name for name in ("value", *_PLACE) if self._fields and name not in own)]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch with the columns of the schema."""
        decoded: dict[str, pa.Array] = {}
        if self._fields:
            rows = decode(self._decoder, batch, self._values.bad)
            batch = batch if rows.of is None else batch.take(rows.of)
            is_struct = self._values.shape is ValueShape.STRUCT
            decoded = (
                {"value": rows.fields} if is_struct else dict(zip(self._fields, rows.fields.flatten(), strict=True))
            )
        arrays = [decoded[field.name] if field.name in decoded else _column(batch, field) for field in self._schema]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name == "topic":
        return _topics(batch.column("topic").dictionary[0].as_py(), 1 << (batch.num_rows - 1).bit_length()).slice(
            0, batch.num_rows
        )
    array = batch.column(field.name)
    if field.type == pa.string():
        return _as_text(array)
    if array.type == field.type:
        return array
    return _as_time(array, field.type) if field.name == "timestamp" else array.cast(field.type)


def _as_time(array: pa.Array, kind: pa.TimestampType) -> pa.Array:
    """Casts timestamps, and clamps those outside Spark's range to its first or last timestamp."""
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        limited = pc.max_element_wise(pc.min_element_wise(array.cast(pa.int64()), _TIME_MS_MAX), -_TIME_MS_MAX)
        return limited.cast(array.type).cast(kind)


@lru_cache(maxsize=16)
def _topics(topic: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(topic, pa.string()), rows)


def _as_text(array: pa.Array) -> pa.Array:
    """Reinterprets the bytes as text without copying. Spark shows invalid UTF-8 as it does after a cast."""
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count, array.offset)
