"""Defines the options for decoding message values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError


class ValueFormat(StrEnum):
    """Encoding of message values."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    ARROW = "arrow"

    @property
    def is_typed(self) -> bool:
        """True if values are decoded into fields."""
        return self not in (ValueFormat.BINARY, ValueFormat.STRING)


class ValueShape(StrEnum):
    """Location of the fields of a value."""

    COLUMNS = "columns"
    """As columns beside the topic's own."""
    STRUCT = "struct"
    """As members of the column `value`."""


class BadValues(StrEnum):
    """Treatment of values that cannot be decoded."""

    FAIL = "fail"
    NULL = "null"
    """Set all their fields to null."""


class AvroFraming(StrEnum):
    """Header in front of the Avro datum in a value."""

    PLAIN = "plain"
    SINGLE_OBJECT = "single-object"
    CONFLUENT = "confluent"


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """Parsed and checked options for values."""

    format: ValueFormat = ValueFormat.BINARY
    schema: str | None = None
    """DDL text, or an Avro schema in JSON."""
    shape: ValueShape = ValueShape.COLUMNS
    bad: BadValues = BadValues.FAIL
    framing: AvroFraming = AvroFraming.PLAIN


def value_options(chosen: Mapping[str, Any]) -> ValueOptions:
    """Returns the options for values. Raises INVALID_SETTING for options that do not apply to the format."""
    found = ValueOptions(
        chosen["valueFormat"], chosen["valueSchema"], chosen["valueShape"], chosen["badValues"], chosen["avroFraming"]
    )
    if not found.format.is_typed:
        plain = ValueOptions(found.format)
        for name, given, default in (
            ("valueSchema", found.schema, plain.schema),
            ("valueShape", found.shape, plain.shape),
            ("badValues", found.bad, plain.bad),
        ):
            if given != default:
                raise _refused(f"the option {name} applies only to valueFormat=json, avro and arrow")
    if found.format is not ValueFormat.AVRO and found.framing is not AvroFraming.PLAIN:
        raise _refused("the option avroFraming applies only to valueFormat=avro")
    if found.format is ValueFormat.AVRO and found.schema is None:
        raise _refused("valueFormat=avro needs the option valueSchema: the Avro schema of the values, in JSON")
    return found


def _refused(text: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_SETTING, text)
