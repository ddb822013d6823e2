"""Tests that Arrow tables are stored unchanged, without a Python object per row."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.sdk.engines import Put
from builders.sdk.scripted_broker import Refuse, Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.producing.row_partitioning import partition_for, sorted_by_key

ROWS = st.lists(
    st.tuples(st.none() | st.binary(max_size=4), st.none() | st.binary(max_size=30)), min_size=1, max_size=60
)


def table(rows: list[tuple[bytes | None, bytes | None]], chunks: int = 2) -> pa.Table:
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    middle = len(rows) // chunks
    parts = [part for part in (rows[:middle], rows[middle:]) if part]
    return pa.Table.from_batches(
        [
            pa.RecordBatch.from_arrays([pa.array(c, pa.binary()) for c in zip(*p, strict=True)], schema=schema)
            for p in parts
        ]
    )


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(1, 5), st.integers(1, 20))
def test_every_row_of_a_table_is_stored_once_and_its_offset_reported(
    rows: list[tuple[bytes | None, bytes | None]], partitions: int, batch_count: int
) -> None:
    async def body(scene: Scene) -> None:
        logs = scene.cluster.topic("t", partitions)
        put = Put(scene, batch_count=batch_count)
        receipts = put.many("t", table(rows))
        places = await receipts
        assert len(places) == len(rows) == sum(len(log.values) for log in logs)
        assert [place.offset for place in places] == list(places.offsets)
        assert [place.partition for place in places] == list(places.partitions)
        for (key, value), place in zip(rows, places, strict=True):
            record = logs[place.partition].records[place.offset]
            assert (record.key, record.value, record.timestamp) == (key, value, 5)
            if key is not None:
                assert place.partition == partition_for(key, partitions)
        assert put.engine.intake.held_bytes == 0

    play(body)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_tables_and_single_messages_keep_their_order_when_a_batch_is_split(compression: str) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, compression=compression)
        await put("t", b"first")
        scene.cluster.then("Produce", Refuse(ErrorCode.MESSAGE_TOO_LARGE))
        receipts = put.many("t", pa.table({"value": [b"%d" % number for number in range(9)], "other": [0] * 9}))
        last = put("t", b"last")
        assert (await last).offset == 10
        assert list((await receipts).offsets) == list(range(1, 10))
        assert scene.cluster.topics["t"][0].values == [b"first", *(b"%d" % number for number in range(9)), b"last"]

    play(body)


def test_a_row_of_a_table_has_an_id_before_it_is_sent() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 2)
        put = Put(scene)
        receipts = put.many("t", table([(b"a", b"1"), (b"b", b"2")]))
        own = receipts[0].message_id
        await receipts
        assert receipts[0].message_id == own
        assert receipts[1].message_id
        assert receipts[0].timestamp_ms == -1

    play(body)


@pytest.mark.parametrize(
    ("given", "columns", "problem"),
    [
        (pa.table({"v": [b"x"]}), {}, "has no column 'value'"),
        (pa.table({"value": [1.5]}), {}, "cannot be converted"),
        (pa.table({"value": [b"x"]}), {"keys": [b"k"]}, "has its own columns"),
        (pa.table({"value": [b"x"]}), {"timestamps_ms": [1]}, "has its own columns"),
    ],
)
def test_an_unsuitable_table_is_refused_before_anything_is_sent(
    given: pa.Table, columns: dict[str, object], problem: str
) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(MillstreamError, match=problem):
            Put(scene).many("t", given, **columns)

    play(body)


def test_a_table_can_have_one_partition_and_can_be_empty() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 3)
        put = Put(scene)
        assert set((await put.many("t", table([(b"a", b"1"), (b"b", b"2")]), partition=2)).partitions) == {2}
        assert len(await put.many("t", pa.table({"value": pa.array([], pa.binary())}))) == 0

    play(body)


@pytest.mark.parametrize(
    ("offsets", "validity", "problem"),
    [([0, 1], None, "fewer"), ([0, 9, 9], None, "an Arrow column's offsets"), ([0, 1, 2], b"", "fewer")],
)
def test_a_key_column_with_invalid_offsets_is_refused(offsets: list[int], validity: bytes | None, problem: str) -> None:
    column = memoryview(b"".join(each.to_bytes(8, "little") for each in offsets)).cast("q")
    with pytest.raises(ValueError, match=problem):
        sorted_by_key(column, validity, 0, b"ab", 0, 2, 3, 0)


@pytest.mark.parametrize("as_table", [False, True])
def test_offsets_are_correct_for_a_batch_split_before_receipts_are_read(as_table: bool) -> None:
    keys = [b"%d" % number for number in range(100)]

    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 4)
        put = Put(scene)
        scene.cluster.then("Produce", Refuse(ErrorCode.MESSAGE_TOO_LARGE))
        columns = {} if as_table else {"keys": keys}
        receipts = put.many("t", pa.table({"key": keys, "value": keys}) if as_table else keys, **columns)
        places = await receipts
        logs = scene.cluster.topics["t"]
        assert sum(len(log.batches) for log in logs) == 5
        for key, place in zip(keys, places, strict=True):
            assert place.partition == partition_for(key, 4)
            assert logs[place.partition].values[place.offset] == key
        assert all(receipt.done() for receipt in receipts)

    play(body)
