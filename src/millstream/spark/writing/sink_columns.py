"""The columns of rows that are written: what is wrong with them is said on the driver, before any task.

Text is written as UTF-8; times to the millisecond. A column of another name is refused rather than left out.
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
"""Which types each column may have; only `value` must be there."""


def check_columns(schema: "StructType", *, has_topic: bool) -> None:
    """INVALID_SETTING, naming the column, for rows that cannot be written. `has_topic`: the option names the topic."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in types.items():
        if name not in COLUMNS:
            text = (
                f"the rows have a column {name}; what can be written are {', '.join(COLUMNS)}. "
                "Leave it out, or put it into the value: to_json(struct(*)) AS value"
            )
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
        if kind not in COLUMNS[name]:
            text = f"the column {name} is of type {kind}; it must be {' or '.join(COLUMNS[name])}: cast it"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    if "value" not in types:
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"the rows have no column value; they have {', '.join(types)}")
    if has_topic and "topic" in types:
        text = "the rows have a column topic and there is an option topic; leave one of them out"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    if not has_topic and "topic" not in types:
        text = "say where to write: the option topic names one for all rows, a column topic one for each"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
