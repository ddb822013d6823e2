"""How values are read, as options say it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError


class ValueFormat(StrEnum):
    """What is in values."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    ARROW = "arrow"

    @property
    def is_typed(self) -> bool:
        """Whether values are read as what is in them."""
        return self not in (ValueFormat.BINARY, ValueFormat.STRING)


class ValueShape(StrEnum):
    """Where the fields of a value are found."""

    COLUMNS = "columns"
    """Beside the topic's own."""
    STRUCT = "struct"
    """In the column `value`."""


class BadValues(StrEnum):
    """What to do with values that are not what they were said to be."""

    FAIL = "fail"
    NULL = "null"
    """All their fields are null."""


class AvroFraming(StrEnum):
    """What stands before the datum in a value."""

    PLAIN = "plain"
    SINGLE_OBJECT = "single-object"
    CONFLUENT = "confluent"


@dataclass(frozen=True, slots=True)
class ValueOptions:
    format: ValueFormat = ValueFormat.BINARY
    schema: str | None = None
    """As Spark's SQL writes one, or as Avro does."""
    shape: ValueShape = ValueShape.COLUMNS
    bad: BadValues = BadValues.FAIL
    framing: AvroFraming = AvroFraming.PLAIN


def value_options(chosen: Mapping[str, Any]) -> ValueOptions:
    """INVALID_SETTING for options that do not fit the format."""
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
                raise _refused(f"the option {name} is for values with types (valueFormat=json, avro or arrow)")
    if found.format is not ValueFormat.AVRO and found.framing is not AvroFraming.PLAIN:
        raise _refused("the option avroFraming is for valueFormat=avro")
    if found.format is ValueFormat.AVRO and found.schema is None:
        raise _refused(
            "valueFormat=avro needs the option valueSchema: the schema of the values, as Avro writes it (JSON)"
        )
    return found


def _refused(text: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_SETTING, text)
