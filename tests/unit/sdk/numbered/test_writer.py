"""Tests the numbered writer on a whole broker: partitions of rows, repeated writes and errors."""

from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from builders.simulated_node import HOST, SimulatedMachine, simulate
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER
from millstream.node.settings import BrokerSettings
from millstream.records.message import Message
from millstream.sdk.aio.client import AsyncClient
from millstream.sdk.numbered.engine import BLOCK_ROWS
from millstream.sdk.numbered.options import NumberedOptions, producer_id_of
from millstream.sdk.producing.row_partitioning import partition_for

TOPIC = "t"


def play(story: Callable[[AsyncClient], Awaitable[None]], *, partitions: int = 1, max_bytes: int = 2**20) -> None:
    async def whole(machine: SimulatedMachine) -> None:
        node = await machine.start()
        async with await machine.connect() as client:
            await client.create_topic(TOPIC, partitions=partitions, settings={"max.message.bytes": str(max_bytes)})
            await story(client)
        await node.stop()

    simulate(BrokerSettings(data=("/data",), host=HOST), whole)


async def write(
    client: AsyncClient, *batches: pa.RecordBatch, name: bytes | None = b"w", epoch: int = 0, **options: Any
) -> int:
    async with client.numbered_writer(TOPIC, name, epoch, **options) as writer:
        for batch in batches:
            await writer.write(batch)
        return await writer.finish()


async def messages(client: AsyncClient, partition: int = 0) -> list[Message]:
    found: list[Message] = []
    while portion := (await client.read(TOPIC, partition, len(found), max_messages=100_000)).messages:
        found += portion
    return found


def values_of(count: int, first: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(first, first + count)]})


def test_all_columns_of_a_row_are_stored() -> None:
    async def story(client: AsyncClient) -> None:
        row = {
            "value": [b"v", None],
            "key": ["k", None],
            "headers": [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None],
            "timestamp": pa.array([1_234_567, 2_000_000], pa.timestamp("us", tz="UTC")),
            "other": [1, 2],
        }
        assert await write(client, pa.RecordBatch.from_pydict(row)) == 2
        first, second = await messages(client)
        assert (first.value, first.key, list(first.headers)) == (b"v", b"k", [("a", b"1"), ("b", None)])
        assert (second.value, second.key, list(second.headers)) == (None, None, [])
        assert [first.timestamp, second.timestamp] == [1234, 2000]

    play(story)


def test_the_partition_column_decides_before_the_key() -> None:
    async def story(client: AsyncClient) -> None:
        numbers = range(300)
        keys = [b"%d" % (number % 11) if number % 2 else None for number in numbers]
        chosen = [number % 4 if number % 3 == 0 else None for number in numbers]
        rows = {"value": [b"%d" % number for number in numbers], "key": keys, "partition": chosen}
        await write(client, pa.RecordBatch.from_pydict(rows), turn=2)
        expected: list[list[bytes]] = [[], [], [], []]
        for number, key, partition in zip(numbers, keys, chosen, strict=True):
            by_key = 2 if key is None else partition_for(key, 4)
            expected[by_key if partition is None else partition].append(b"%d" % number)
        assert [[each.value for each in await messages(client, number)] for number in range(4)] == expected

    play(story, partitions=4)


def test_rows_without_key_and_partition_rotate_in_blocks_by_row_number() -> None:
    async def story(client: AsyncClient) -> None:
        rows = values_of(2 * BLOCK_ROWS + 10)
        cuts = [BLOCK_ROWS - 1, BLOCK_ROWS + 5, rows.num_rows]
        parts = [rows.slice(start, end - start) for start, end in zip([0, *cuts], cuts, strict=False)]
        await write(client, *parts, turn=1)
        found = [await messages(client, number) for number in range(3)]
        assert [len(each) for each in found] == [10, BLOCK_ROWS, BLOCK_ROWS]
        assert [found[number][0].value for number in (1, 2, 0)] == [b"0", b"%d" % BLOCK_ROWS, b"%d" % (2 * BLOCK_ROWS)]

    play(story, partitions=3)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_repeated_writer_stores_only_missing_rows(compression: str) -> None:
    async def story(client: AsyncClient) -> None:
        await write(client, values_of(70), compression=compression, batch_bytes=500)
        again = [values_of(33), values_of(67, 33)]
        assert await write(client, *again, compression=compression, batch_bytes=600) == 100
        assert [each.value for each in await messages(client)] == [b"%d" % number for number in range(100)]

    play(story)


def test_writers_without_a_name_store_all_their_rows() -> None:
    async def story(client: AsyncClient) -> None:
        for _ in range(2):
            await write(client, values_of(50), name=None, batch_bytes=200)
        assert [each.value for each in await messages(client)] == 2 * [b"%d" % number for number in range(50)]

    play(story)


def test_a_higher_epoch_starts_at_row_0_and_fences_lower_epochs() -> None:
    async def story(client: AsyncClient) -> None:
        await write(client, values_of(3), epoch=5)
        await write(client, values_of(2), epoch=7)
        assert await write(client, values_of(9), epoch=5) == 9, "of an earlier epoch nothing is missing"
        await write(client, values_of(1), epoch=32767)
        await write(client, values_of(1), name=b"other")
        assert [each.value for each in await messages(client)] == [b"0", b"1", b"2", b"0", b"1", b"0", b"0"]

    play(story)


def test_a_batch_too_large_for_the_topic_is_split_until_it_fits() -> None:
    async def story(client: AsyncClient) -> None:
        await write(client, values_of(1000))
        assert [each.value for each in await messages(client)] == [b"%d" % number for number in range(1000)]
        with pytest.raises(MillstreamError) as error:
            await write(client, pa.RecordBatch.from_pydict({"value": [bytes(2000)]}), name=b"large")
        assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE

    play(story, max_bytes=1000)


def test_a_writer_unknown_to_the_broker_fails_and_stores_nothing_twice() -> None:
    async def story(client: AsyncClient) -> None:
        async with client.numbered_writer(TOPIC, b"w", batch_bytes=500) as writer:
            await writer.write(values_of(50))
            await writer.finish()
            await client.delete_topic(TOPIC)
            await client.create_topic(TOPIC)
            await writer.write(values_of(50, 50))
            with pytest.raises(MillstreamError, match="50 rows were stored, but the broker knows only 0") as error:
                await writer.finish()
            assert error.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
        assert await messages(client) == []

    play(story)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"key": [b"k"]}, "column 'value'"),
        ({"value": [1.5]}, "double"),
        ({"value": [b"v"], "partition": [2]}, "partition 2; the partitions are 0 to 1"),
        ({"value": [b"v"], "partition": [-1]}, "partition -1; the partitions are 0 to 1"),
        ({"value": [b"v"], "partition": ["x"]}, "x"),
    ],
)
def test_unsuitable_rows_are_refused_with_the_reason(columns: dict[str, Any], says: str) -> None:
    async def story(client: AsyncClient) -> None:
        with pytest.raises(MillstreamError, match=says) as error:
            await write(client, pa.RecordBatch.from_pydict(columns))
        assert error.value.code is ErrorCode.INVALID_REQUEST

    play(story, partitions=2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": b""}, "name"),
        ({"epoch": 32768}, "epoch"),
        ({"epoch": -1}, "epoch"),
        ({"partitions": 0}, "partitions"),
        ({"compression": "none", "batch_bytes": 0}, "batch_bytes"),
    ],
)
def test_invalid_writer_options_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(MillstreamError, match=f"{says}=") as error:
        NumberedOptions(**{"name": b"w", **options})
    assert error.value.code is ErrorCode.INVALID_SETTING


def test_a_name_maps_to_a_fixed_producer_id_that_brokers_do_not_assign() -> None:
    ids = {producer_id_of(b"%d" % number) for number in range(1000)}
    assert len(ids) == 1000
    assert all(FIRST_SELF_NAMED_PRODUCER <= each < 2**63 for each in ids)
    assert producer_id_of(b"orders") == 0x55ACEBE867B47F4D
