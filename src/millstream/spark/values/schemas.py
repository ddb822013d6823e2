"""Determines the columns of values on the driver, and creates their decoders on the executors."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.values.arrow_values import ArrowDecoder, infer_arrow
from millstream.spark.values.avro_values import AvroDecoder, AvroSchema
from millstream.spark.values.decoding import Decoder
from millstream.spark.values.json_values import JsonDecoder, infer_json
from millstream.spark.values.options import BadValues, ValueFormat, ValueOptions

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

Sample = Callable[[], Sequence[bytes]]

_JSON_TYPES = frozenset(
    {
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "date",
        "timestamp",
        "timestamp_ntz",
    }
)


def fields_of(values: ValueOptions, sample: Sample) -> "StructType":
    """Returns the columns of values, from an Avro schema or inferred from a sample.

    Raises INVALID_SETTING if that fails.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    found = AvroSchema(values.schema or "").type if values.format is ValueFormat.AVRO else _inferred(values, sample())
    try:
        return from_arrow_schema(pa.schema(list(found))).toNullable()
    except PySparkException as error:
        raise MillstreamError(
            ErrorCode.INVALID_SETTING, f"Spark has no type for a column of the values: {error}"
        ) from None


def _inferred(values: ValueOptions, found: Sequence[bytes]) -> pa.StructType:
    """Infers the columns from sample values."""
    advice = "set the option valueSchema"
    if not found:
        text = f"there are no messages to infer the columns of the values from; {advice}"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    try:
        if values.format is ValueFormat.ARROW:
            return infer_arrow(found)
        return infer_json(found, is_strict=values.bad is BadValues.FAIL)
    except ValueError as error:
        text = f"the columns of the values cannot be inferred from the newest messages: {error}; {advice}"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text) from None


def check_fields(fields: "StructType", values: ValueOptions) -> None:
    """Checks that the columns can be read from values of this format.

    Raises INVALID_SETTING, naming the column, for a NOT NULL column or a type that the format lacks.
    """
    for field in fields.fields:
        if not may_be_null(field):
            text = f"the column {field.name}, or a part of it, is NOT NULL, but values may lack it; remove NOT NULL"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
        if values.format is ValueFormat.JSON:
            _check_json(field.name, field.dataType)
    if values.format is ValueFormat.AVRO:
        _check_avro(fields, fields_of(values, list))


def may_be_null(field: "StructField") -> bool:
    """True if the column and everything inside it are nullable.

    For a type that is NOT NULL, Spark does not check for nulls and would show arbitrary bytes.
    """
    from pyspark.sql.types import StructType

    alone = StructType([field])
    return alone.toNullable() == alone


def _check_json(name: str, kind: "DataType") -> None:
    from pyspark.sql.types import ArrayType, DecimalType, StructType

    if isinstance(kind, StructType):
        for field in kind.fields:
            _check_json(f"{name}.{field.name}", field.dataType)
    elif isinstance(kind, ArrayType):
        _check_json(f"{name}[]", kind.elementType)
    elif not isinstance(kind, DecimalType) and kind.simpleString() not in _JSON_TYPES:
        text = (
            f"{name} has type {kind.simpleString()}, which cannot be read from JSON (accepted: "
            f"{', '.join(sorted(_JSON_TYPES))}, decimal, array and struct)"
        )
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)


def _check_avro(fields: "StructType", whole: "StructType") -> None:
    known = {field.name: field.dataType for field in whole.fields}
    for field in fields.fields:
        found = known.get(field.name)
        if found != field.dataType:
            has = whole.simpleString() if found is None else f"its type there is {found.simpleString()}"
            text = f"{field.name} of type {field.dataType.simpleString()} is not in the Avro schema: {has}"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)


def decoder_of(values: ValueOptions, wanted: pa.StructType) -> Decoder:
    """Returns the decoder of these fields."""
    if values.format is ValueFormat.JSON:
        return JsonDecoder(wanted)
    if values.format is ValueFormat.ARROW:
        return ArrowDecoder(wanted)
    return AvroDecoder(AvroSchema(values.schema or ""), wanted, values.framing)
