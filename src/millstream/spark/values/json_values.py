"""Decodes JSON values, many in one call of Arrow's parser.

Each value is wrapped into an array inside an object of its own. The parser must not confuse neighbouring values,
whatever bytes they contain. A value that ends its wrapper early leaves the parser outside all brackets, and no string
may span a line break, so every accepted value produces at least one row. If there are as many rows as values, each row
belongs to its value; if each array has one element, each value is a single JSON value.

One case remains: a value that closes the array and then adds a member is accepted, because the parser ignores unknown
members. If that is possible, the values are parsed again without an array, where there is no array to close.
"""

import json
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

_WRAPPER = "v"
_ARRAY, _PLAIN = (b'{"v":[', b"]}\n"), (b'{"v":', b"}\n")
_MAYBE_MORE = re.compile(rb'\}\s*\]\s*,\s*"')
_NOT_ONE = "not a single JSON value"
_ANY = pj.ParseOptions(explicit_schema=pa.schema([(_WRAPPER, pa.struct([]))]), unexpected_field_behavior="ignore")
_DEPTH_MAX = 100
"""Maximum nesting depth of values from which columns are inferred."""
_STRINGS_AND_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[][{}]', re.DOTALL)


class JsonDecoder:
    """Decodes JSON values. Fields that a value lacks are null; fields that were not requested are ignored."""

    def __init__(self, wanted: pa.StructType) -> None:
        self.type = wanted
        schema = pa.schema([(_WRAPPER, pa.list_(_as_parsed(wanted)))])
        self._options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def decode(self, values: pa.Array) -> tuple[pa.StructArray, None]:
        found = _parsed(values, self._options)
        if not _is_finite(found):
            raise ValueError("a number is NaN or infinite, which JSON does not allow")
        return found.cast(self.type), None


def infer_json(values: Sequence[bytes], *, is_strict: bool) -> pa.StructType:
    """Returns the fields of these values. Unless `is_strict`, values that are not objects are ignored.

    A field that is always null becomes text, and so does text that looks like a time: other values may differ. Raises
    ValueError if the values are not objects, differ in their types, or are nested too deeply.
    """
    chosen = values if is_strict else [value for value in values if not _is_deep(value) and _is_object(value)]
    if not chosen:
        raise ValueError("none of them is an object")
    if any(map(_is_deep, chosen)):
        raise ValueError(f"one has more than {_DEPTH_MAX} nested objects and arrays")
    found = _parsed(pa.array(chosen, pa.binary()), pj.ParseOptions()).type
    if not pa.types.is_struct(found):
        raise ValueError(f"they are not objects but {found}")
    return _generalised(found)


def _is_deep(value: bytes) -> bool:
    """True if the value has more than `_DEPTH_MAX` nested objects and arrays."""
    if value.count(b"{") + value.count(b"[") <= _DEPTH_MAX:
        return False
    depth = 0
    for token in _STRINGS_AND_BRACKETS.findall(value):
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
        if depth > _DEPTH_MAX:
            return True
    return False


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def _parsed(values: pa.Array, options: pj.ParseOptions) -> pa.Array:
    text = _wrapped(_ARRAY, values)
    try:
        values.cast(pa.string())  # Check for valid UTF-8: the parser accepts any bytes between quotation marks.
        arrays = _read(text, options).combine_chunks()
    except pa.ArrowInvalid as error:
        raise ValueError(str(error).replace(f"(/{_WRAPPER}/[]", "(").removesuffix(" in row 0")) from None
    if len(arrays) != len(values) or not pc.all(pc.equal(pc.list_value_length(arrays), 1)).as_py():
        raise ValueError(_NOT_ONE)
    found = arrays.flatten()
    if found.null_count != values.null_count or _MAYBE_MORE.search(text):
        _check_closed(values)
    return found


def _is_finite(found: pa.Array) -> bool:
    """True if no number is NaN or infinite. Arrow's parser accepts these, but JSON does not have them."""
    if pa.types.is_struct(found.type):
        return all(map(_is_finite, found.flatten()))
    if pa.types.is_list(found.type):
        return _is_finite(found.flatten())
    return not pa.types.is_floating(found.type) or pc.all(pc.is_finite(found)).as_py() is not False


def _check_closed(values: pa.Array) -> None:
    """Raises ValueError if one of these values closes the array that it is wrapped into."""
    try:
        _read(_wrapped(_PLAIN, values), _ANY)
    except pa.ArrowInvalid:
        raise ValueError(_NOT_ONE) from None


def _wrapped(wrapper: tuple[bytes, bytes], values: pa.Array) -> pa.Buffer:
    opening, closing = wrapper
    whole = pc.binary_join_element_wise(
        opening, values, closing, b"", null_handling="replace", null_replacement=b"null"
    )
    return whole.buffers()[2]


def _read(text: pa.Buffer, options: pj.ParseOptions) -> pa.ChunkedArray:
    reading = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
    return pj.read_json(pa.BufferReader(text), read_options=reading, parse_options=options).column(_WRAPPER)


def _as_parsed(kind: pa.DataType) -> pa.DataType:
    """Returns the type to parse: dates are parsed as text and cast later, because the parser reads them only as
    numbers.
    """
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
    """True for objects that never have a field, and for arrays of them."""
    while pa.types.is_list(kind):
        kind = kind.value_type
    return pa.types.is_struct(kind) and all(_is_empty(field.type) for field in kind)
