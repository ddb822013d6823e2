"""Tests Arrow decoding: each row of each message becomes a row with the requested columns."""

from io import BytesIO

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.value_batches import value_batch
from millstream.spark.values.arrow_values import ArrowDecoder, infer_arrow
from millstream.spark.values.decoding import decode
from millstream.spark.values.options import BadValues

WANTED = pa.struct([("a", pa.int64()), ("b", pa.string())])
DECODER = ArrowDecoder(WANTED)


def stream(table: pa.Table, *, is_file: bool = False) -> bytes:
    sink = BytesIO()
    with (pa.ipc.new_file if is_file else pa.ipc.new_stream)(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


_tables = st.lists(st.tuples(st.integers(0, 9) | st.none(), st.text(max_size=3)), max_size=5)
_values = st.none() | st.tuples(_tables, st.booleans()) | st.binary(max_size=20)


@given(st.lists(_values, max_size=6))
def test_rows_come_in_order_with_the_index_of_their_message(
    messages: "list[tuple[list[tuple[int | None, str]], bool] | bytes | None]",
) -> None:
    values: list[bytes | None] = []
    expected: list[tuple[int, dict[str, object] | None]] = []
    for number, message in enumerate(messages):
        if not isinstance(message, tuple):
            values.append(message)
            expected.append((number, None))
            continue
        rows = [{"a": a, "b": b, "c": 1} for a, b in message[0]]
        table = pa.Table.from_pylist(rows, pa.schema([("c", pa.int8()), ("b", pa.large_string()), ("a", pa.int32())]))
        values.append(stream(table, is_file=message[1]))
        expected += [(number, {"a": a, "b": b}) for a, b in message[0]]
    found = decode(DECODER, value_batch(values), BadValues.NULL)
    numbers = range(len(values)) if found.of is None else found.of.to_pylist()
    assert list(zip(numbers, found.fields.to_pylist(), strict=True)) == expected


def test_missing_columns_are_null_and_dictionaries_are_decoded() -> None:
    table = pa.table({"b": pa.array(["x", "x"]).dictionary_encode()})
    found, counts = DECODER.decode(pa.array([stream(table)]))
    assert found.to_pylist() == [{"a": None, "b": "x"}, {"a": None, "b": "x"}]
    assert counts == [2]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"ARROW1", "not an Arrow IPC stream"),
        (b"x", "not an Arrow IPC stream"),
        (stream(pa.table({"a": ["x"]})), "column a cannot be cast to int64"),
        (stream(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])), "column a cannot be cast"),
        (stream(pa.table({"a": [1.5]})), "column a cannot be cast to int64"),
    ],
)
def test_invalid_values_are_refused_with_a_reason(value: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DECODER.decode(pa.array([value]))


def test_columns_are_inferred_from_the_newest_readable_message() -> None:
    old, new = pa.table({"a": [1]}), pa.table({"a": [1], "b": ["x"]})
    assert infer_arrow([stream(old), stream(new), b"x"]) == pa.struct([("a", pa.int64()), ("b", pa.string())])
    with pytest.raises(ValueError, match="not an Arrow IPC stream"):
        infer_arrow([b"x"])
