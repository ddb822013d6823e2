"""Tests the order in which a task writes its rows if Spark delivers them in a different order each time."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.writing.task_writes import in_order_of_content

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32()), ("headers", HEADERS)])

_few = st.binary(max_size=2) | st.none()
_header = st.fixed_dictionaries({"key": st.text("a1:", max_size=2), "value": _few})
_row = st.fixed_dictionaries(
    {"key": _few, "value": _few, "partition": st.integers(0, 1), "headers": st.lists(_header, max_size=3) | st.none()}
)
_rows = st.lists(_row, max_size=12)


@given(_rows.flatmap(lambda rows: st.tuples(st.permutations(rows), st.permutations(rows))), st.integers(0, 12))
def test_sorted_rows_do_not_depend_on_their_input_order(
    orders: tuple[list[dict[str, Any]], list[dict[str, Any]]], cut: int
) -> None:
    first, second = (put_in_order(rows, cut) for rows in orders)
    assert first == second
    assert all(first.count(row) == orders[0].count(row) for row in orders[0])
    assert len(first) == len(orders[0])


def put_in_order(rows: list[dict[str, Any]], cut: int) -> list[dict[str, Any]]:
    batches = [pa.RecordBatch.from_pylist(part, SCHEMA) for part in (rows[:cut], rows[cut:])]
    return [row for batch in in_order_of_content(iter(batches)) for row in batch.to_pylist()]
