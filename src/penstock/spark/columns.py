"""The columns of a topic: as Spark knows them, and as Arrow, in exactly the types that Spark expects of a source.

A schema of the user's chooses among them, and what it leaves out is not sent to Spark.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.model.errors import ErrorCode, PenstockError
from penstock.spark.options import ValueFormat

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Types by name, in their order; a key may also be read as a string."""


def source_schema(value_format: ValueFormat, *, headers: bool) -> str:
    """All columns, as Spark's SQL writes them."""
    types = COLUMNS | {"value": value_format.value}
    return ", ".join(f"{name} {kind}" for name, kind in types.items() if headers or name != "headers")


def check_schema(schema: "StructType", value_format: ValueFormat) -> None:
    """INVALID_SETTING, naming the column, for a schema with something that topics do not have."""
    for field in schema.fields:
        allowed = {COLUMNS.get(field.name, "")}
        if field.name == "key":
            allowed.add("string")
        elif field.name == "value":
            allowed = {value_format.value}
        kind = field.dataType.simpleString()
        if field.name not in COLUMNS:
            text = f"the schema has a column {field.name}; the columns of topics are {', '.join(COLUMNS)}"
            raise PenstockError(ErrorCode.INVALID_SETTING, text)
        if kind not in allowed:
            text = f"the schema has a column {field.name} of type {kind}; its type is {' or '.join(sorted(allowed))}"
            if field.name == "value":
                text += " (the option valueFormat chooses)"
            raise PenstockError(ErrorCode.INVALID_SETTING, text)


class ArrowColumns:
    """Makes of the SDK's record batches those that Spark takes for a schema; no row is looked at."""

    def __init__(self, schema: "StructType") -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [_column(batch, field) for field in self._schema]
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
    return array if array.type == field.type else array.cast(field.type)


@lru_cache(maxsize=16)
def _topics(topic: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(topic, pa.string()), rows)


def _as_text(array: pa.Array) -> pa.Array:
    """The same bytes as text; what is not UTF-8 in it Spark shows as it does after a cast."""
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count, array.offset)
