"""Tests batches that are split or moved to another partition: no message is stored twice, and ids do not change."""

import asyncio
from typing import Any

import pytest

from builders.sdk.engines import Put
from builders.sdk.scripted_broker import Late, Refuse, Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import ID_HEADER
from millstream.sdk.producing import batch_compression
from millstream.sdk.producing.batches import parts
from millstream.sdk.producing.chunk import ProducerBatch, Receipt
from millstream.sdk.producing.row_partitioning import partition_for

PARTITIONS = 8


async def put_to_all(put: Put) -> None:
    """Put one message to each partition, after which several batches per partition may be in flight."""
    for number in range(PARTITIONS):
        await put("t", b"", partition=number)


@pytest.mark.parametrize("gone_first", [False, True])
@pytest.mark.parametrize("column", [None, "key", "hash"])
def test_messages_for_a_removed_partition_move_to_an_existing_one(column: str | None, gone_first: bool) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", PARTITIONS)
        put = Put(scene, batch_count=2)
        await put_to_all(put)
        if gone_first:
            del scene.cluster.topics["t"]
        else:
            scene.cluster.topic("t", 1)
        receipts = []
        for number in range(40):
            deciding: dict[str | None, Any] = {"key": b"k%d" % number, "hash": number}
            given = {} if column is None else {column: deciding[column]}
            receipts.append(put("t", b"%d" % number, **given))
        places = [await receipt for receipt in receipts]
        assert {place.partition for place in places} == {0}
        assert sorted(place.offset for place in places) == list(range(40))
        (log,) = scene.cluster.topics["t"]
        assert [log.values[place.offset] for place in places] == [b"%d" % number for number in range(40)]
        assert put.engine.intake.held_bytes == 0

    play(body)


def test_moved_messages_with_keys_are_partitioned_again() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", PARTITIONS)
        put = Put(scene)
        await put_to_all(put)
        scene.cluster.topic("t", 3)
        keys = [b"k%d" % number for number in range(50)]
        moved = await put.many("t", [b"a"] * 50, keys=keys)
        before = [partition_for(key, PARTITIONS) for key in keys]
        expected = [was if was < 3 else partition_for(key, 3) for key, was in zip(keys, before, strict=True)]
        assert [place.partition for place in moved] == expected

    play(body)


@pytest.mark.parametrize("in_order", [False, True])
def test_a_message_with_a_chosen_partition_is_not_moved(in_order: bool) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", PARTITIONS)
        put = Put(scene, in_order=in_order)
        await put_to_all(put)
        scene.cluster.topic("t", 1)
        chosen = [put("t", b"a", partition=5), put("t", b"b", partition=0)]
        with pytest.raises(MillstreamError, match="has no partition 5; it has 0 to 0"):
            await chosen[0]
        assert (await chosen[1]).partition == 0
        assert scene.cluster.topics["t"][0].values == [b"b"]

    play(body)


def test_a_message_whose_made_id_was_read_is_not_moved() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t", 2)
        put = Put(scene)
        for number in range(2):
            await put("t", b"", partition=number)
        scene.cluster.then("Produce", Late(1.0), Late(1.0))
        receipts = [put("t", b"v", hash=number) for number in range(2)]
        await asyncio.sleep(0.1)
        known_ids = [receipt.message_id for receipt in receipts]
        assert all(each.startswith(b"~") for each in known_ids)
        scene.cluster.topic("t", 1)
        with pytest.raises(MillstreamError, match="no partition 1"):
            await receipts[1]
        assert [receipt.message_id for receipt in receipts] == known_ids

    play(body)


@pytest.mark.parametrize("asked", ["before", "after"])
def test_an_id_read_while_its_batch_is_split_does_not_change(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        receipts: list[Receipt] = []
        known_ids: list[bytes] = []

        def halved(batch: ProducerBatch, *given: Any) -> list[ProducerBatch]:
            if asked == "before":
                known_ids.append(receipts[3].message_id)
            made = parts(batch, *given)
            if asked == "after":
                known_ids.append(receipts[3].message_id)
            return made

        monkeypatch.setattr(batch_compression, "parts", halved)
        await put("t", b"first")
        scene.cluster.then("Produce", Refuse(ErrorCode.MESSAGE_TOO_LARGE))
        receipts += [put("t", b"%d" % number) for number in range(4)]
        await receipts[3]
        assert [receipts[3].message_id] == known_ids
        (log,) = scene.cluster.topics["t"]
        assert log.values == [b"first", b"0", b"1", b"2", b"3"]
        assert (ID_HEADER, known_ids[0]) in log.records[4].headers
        assert receipts[0].message_id.startswith(b"~")

    play(body)
