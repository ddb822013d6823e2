"""Values in JSON, many in one call of Arrow's parser.

Each value is wrapped into an object of its own. So whatever values are, one that the parser accepts makes at least one
row: what closes one wrapper and what opens the next, with no comma between, can only be read outside of everything, and
no string goes beyond the end of a line. As many rows as values therefore means that each row is its value's.
"""

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

_WRAPPER = "v"
_OPEN, _CLOSE = b'{"v":', b"}\n"


class JsonDecoder:
    """Fields that a value lacks are null, and others than those that are wanted are passed over."""

    def __init__(self, wanted: pa.StructType) -> None:
        self.type = wanted
        schema = pa.schema([(_WRAPPER, _as_parsed(wanted))])
        self._options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def decode(self, values: pa.Array) -> tuple[pa.StructArray, None]:
        return _parsed(values, self._options).cast(self.type), None


def infer_json(values: Sequence[bytes], *, is_strict: bool) -> pa.StructType:
    """The fields of these values; unless it is strict, those that are no objects are not looked at.

    What never is anything but null is taken for text, and so is what looks like a time: others may not.
    ValueError where values are none, or differ in their types.
    """
    chosen = values if is_strict else [value for value in values if _is_object(value)]
    if not chosen:
        raise ValueError("none of them has fields")
    found = _parsed(pa.array(chosen, pa.binary()), pj.ParseOptions()).type
    if not pa.types.is_struct(found):
        raise ValueError(f"they are no objects but {found}")
    return _generalised(found)


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def _parsed(values: pa.Array, options: pj.ParseOptions) -> pa.Array:
    wrapped = pc.binary_join_element_wise(_OPEN, values, _CLOSE, b"", null_handling="replace", null_replacement=b"null")
    text = wrapped.buffers()[2]
    reading = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
    try:
        column = pj.read_json(pa.BufferReader(text), read_options=reading, parse_options=options).column(_WRAPPER)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error).replace(f"(/{_WRAPPER}", "(").removesuffix(" in row 0")) from None
    if len(column) != len(values):
        raise ValueError("it is more than one value of JSON")
    return column.combine_chunks()


def _as_parsed(kind: pa.DataType) -> pa.DataType:
    """The parser has dates as numbers only; as text they are cast afterwards."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_parsed(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_parsed(kind.value_type))
    return pa.string() if pa.types.is_date(kind) else kind


def _generalised(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _generalised(field.type)) for field in kind if not _is_empty(field.type)])
    if pa.types.is_list(kind):
        return pa.list_(_generalised(kind.value_type))
    return pa.string() if pa.types.is_null(kind) or pa.types.is_temporal(kind) else kind


def _is_empty(kind: pa.DataType) -> bool:
    """Objects in which there never is a field."""
    while pa.types.is_list(kind):
        kind = kind.value_type
    return pa.types.is_struct(kind) and all(_is_empty(field.type) for field in kind)
