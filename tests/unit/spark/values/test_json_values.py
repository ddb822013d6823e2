"""Tests JSON decoding: the resulting columns, and that neighbouring values are never confused."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.value_batches import value_batch
from millstream.model.errors import MillstreamError
from millstream.spark.values.decoding import decode
from millstream.spark.values.json_values import JsonDecoder, infer_json
from millstream.spark.values.options import BadValues

NUMBERS = JsonDecoder(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]))

_good = st.fixed_dictionaries(
    {}, optional={"a": st.integers(-(2**63), 2**63 - 1) | st.none(), "b": st.lists(st.text()), "c": st.text()}
)
_indents = st.none() | st.integers(0, 2)
_written = st.builds(lambda value, indent: json.dumps(value, indent=indent).encode(), _good, _indents)
_pieces = st.lists(
    st.sampled_from([b'{"a":1}', b"}", b"\n", b'{"v":', b'{"a":', b'"', b"]", b",", b"1", b"\\", b'"x":'])
)
_broken = _pieces.map(b"".join) | st.binary()


def one(value: bytes | None) -> Any:
    """Decodes a single value."""
    (found,) = decode(NUMBERS, value_batch([value]), BadValues.NULL).fields.to_pylist()
    return found


@given(st.lists(_written | _broken | st.none(), max_size=12))
def test_every_value_is_decoded_independently_of_its_neighbours(values: list[bytes | None]) -> None:
    assert decode(NUMBERS, value_batch(values), BadValues.NULL).fields.to_pylist() == [one(value) for value in values]


@given(_pieces.map(b"".join))
def test_only_valid_json_is_accepted(value: bytes) -> None:
    try:
        NUMBERS.decode(pa.array([value]))
    except ValueError:
        return
    json.loads(value)


@given(_good, _indents)
def test_decoded_fields_equal_the_encoded_ones(value: dict[str, Any], indent: int | None) -> None:
    assert one(json.dumps(value, indent=indent).encode()) == {"a": value.get("a"), "b": value.get("b")}


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.int8(), b"-7", -7),
        (pa.float32(), b"1.5e1", 15.0),
        (pa.decimal128(10, 2), b"1.25", Decimal("1.25")),
        (pa.bool_(), b"true", True),
        (pa.string(), b'"gr\\u00fcn\\n"', "grün\n"),
        (pa.date32(), b'"2026-01-31"', date(2026, 1, 31)),
        (pa.timestamp("us", "UTC"), b'"2026-01-31T13:00:00.5+01:00"', datetime(2026, 1, 31, 12, 0, 0, 500_000, UTC)),
        (pa.list_(pa.struct([("d", pa.date32())])), b'[{"d": null}, {}]', [{"d": None}, {"d": None}]),
    ],
)
def test_supported_types_are_decoded(kind: pa.DataType, text: bytes, expected: object) -> None:
    found, _ = JsonDecoder(pa.struct([("a", kind)])).decode(pa.array([b'{"a":' + text + b"}"]))
    assert found.type == pa.struct([("a", kind)])
    assert found.to_pylist() == [{"a": expected}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not a single JSON value"),
        (b"5", "changed from object to number"),
        (b'{"a": 1.5}', "couldn't parse:1.5"),
        (b'{"a": "1"}', r"Column\(/a\) changed from number to string$"),
        (b'{"a": 9223372036854775808}', "couldn't parse"),
        (b'{"a": 1}}\n{"v":{"a":2}', "after an array element"),
        (b'{"a": 1}]}\n{"v":[{"a":2}', "not a single JSON value"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": 1}], "x": [3', "not a single JSON value"),
        (b'{"a": 1} ] , "x": [{}', "not a single JSON value"),
        (b'null], "x": [3', "not a single JSON value"),
        (b'{"a": 1}, {"a": 2}', "not a single JSON value"),
        (b'{"a": 1}, "x": 3', "from object to string|after an array element"),
        (b'{"a": 1}\n,\n"x": {"b": [{}]}', "from object to string|after an array element"),
        (b'{"a": 1}, "x": [{"y": 1}], "z": 5', "from object to string|after an array element"),
        (b'null, "x": 3', "from object to string|after an array element"),
        (b'{"b": ["\xff"]}', "Invalid UTF8"),
    ],
)
def test_invalid_values_are_refused_with_a_reason(text: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        NUMBERS.decode(pa.array([text]))


@pytest.mark.parametrize("number", [b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"Inf", b"-Inf"])
@pytest.mark.parametrize("field", [b'"a": %s', b'"b": [{"c": 1.5}, {}, {"c": %s}]'])
def test_nan_and_infinity_are_bad_values(number: bytes, field: bytes) -> None:
    kind = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.struct([("c", pa.float32())])))])
    values = [b"{}", b'{"a": 1.5, "b": null}', b"{" + field % number + b"}", None]
    found = decode(JsonDecoder(kind), value_batch(values), BadValues.NULL).fields.to_pylist()
    assert found == [{"a": None, "b": None}, {"a": 1.5, "b": None}, None, None]
    with pytest.raises(MillstreamError, match=r"offset 102 .*: a number is NaN or infinite"):
        decode(JsonDecoder(kind), value_batch(values), BadValues.FAIL)


def test_nested_objects_do_not_split_a_value() -> None:
    values = [b'{"c": {"a": 2}, "a": 1, "d": [{}, {}], "b": ["},"]}', b'{"a": 2}', b'{"c": [{"a": {}}], "b": null}']
    found, _ = NUMBERS.decode(pa.array(values))
    assert found.to_pylist() == [{"a": 1, "b": ["},"]}, {"a": 2, "b": None}, {"a": None, "b": None}]


@pytest.mark.parametrize("depth", [101, 3000, 100_000])
def test_columns_are_not_inferred_from_values_nested_too_deeply(depth: int) -> None:
    deep = b'{"n":' * depth + b"1" + b"}" * depth
    with pytest.raises(ValueError, match="more than 100 nested objects"):
        infer_json([b'{"a": 1}', deep], is_strict=True)
    assert infer_json([b'{"a": 1}', deep], is_strict=False) == pa.struct([("a", pa.int64())])


def test_columns_are_inferred_from_values_with_many_sibling_objects() -> None:
    value = b'{"a": [' + b'{"b": "}{"},' * 1000 + b'{"b": "{"}]}'
    assert infer_json([value], is_strict=True) == pa.struct([("a", pa.list_(pa.struct([("b", pa.string())])))])


def test_types_are_inferred_from_values() -> None:
    values = [b'{"a": 1, "b": null, "c": "2026-01-31 12:00:00", "d": {}}', b'{"a": 1.5, "e": [{"f": true, "g": []}]}']
    expected = {"a": pa.float64(), "b": pa.string(), "c": pa.string()}
    inner = pa.struct([("f", pa.bool_()), ("g", pa.list_(pa.string()))])
    assert infer_json(values, is_strict=True) == pa.struct([*expected.items(), ("e", pa.list_(inner))])
    assert infer_json([b"{", b"7", *values], is_strict=False) == infer_json(values, is_strict=True)


@pytest.mark.parametrize("values", [[b'{"a": 1}', b'{"a": "x"}'], [b"{"], [b"5"], [b"[1]"]])
def test_values_without_a_common_type_are_refused(values: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"JSON|objects"):
        infer_json(values, is_strict=True)
