"""Checks the columns of rows to be written, on the driver, before any task runs.

Text is written as UTF-8, and timestamps in milliseconds. Unknown columns are refused rather than ignored.
"""

from typing import TYPE_CHECKING

from millstream.model.errors import ErrorCode, MillstreamError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_BYTES = ("binary", "string")
_HEADERS = ("array<struct<key:string,value:binary>>", "array<struct<key:string,value:string>>")

COLUMNS = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": _HEADERS,
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "timestamp": ("timestamp",),
    "topic": ("string",),
}
"""Accepted types of each column. Only `value` is required."""


def check_columns(schema: "StructType", *, has_topic: bool) -> None:
    """Raises INVALID_SETTING, with the column's name, for invalid rows. `has_topic`: the option `topic` is set."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in types.items():
        if name not in COLUMNS:
            text = (
                f"the rows have a column {name}, which cannot be written (accepted: {', '.join(COLUMNS)}). "
                "Remove it, or put it into the value: to_json(struct(*)) AS value"
            )
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
        if kind not in COLUMNS[name]:
            text = f"the column {name} has type {kind}; cast it to {' or '.join(COLUMNS[name])}"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    if "value" not in types:
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"the rows have no column value (found: {', '.join(types)})")
    if has_topic and "topic" in types:
        text = "the rows have a column topic, and the option topic is set; use only one of them"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    if not has_topic and "topic" not in types:
        text = "no topic to write to: set the option topic for all rows, or add a column topic that names it per row"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
