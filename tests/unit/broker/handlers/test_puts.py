"""Tests Puts: writes by key hash, and their results."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch
from builders.partitions import ELSEWHERE, move_leader, read_all
from builders.requests import request_frame
from builders.served import ServedBroker, produce, puts, serve, until
from millstream.model.errors import ErrorCode
from millstream.storage.flush.group_commit import GroupCommit
from millstream.storage.store import FlushPolicy
from millstream.wire.puts import BY_HASH, parse_puts_response, write_puts_request


@pytest.mark.parametrize("policy", [FlushPolicy.OS, FlushPolicy.ALWAYS])
def test_batches_are_stored_in_order_and_their_offsets_answered(policy: FlushPolicy, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        for base_offset in (0, 2, 4):
            result = await puts(peer, "events", batch(b"a", b"b"))
            assert (result.error, result.partition, result.base_offset, result.log_start_offset) == (
                0,
                0,
                base_offset,
                0,
            )
        assert [record.value for record in await read_all(broker.partitions.of("events")[0])] == [b"a", b"b"] * 3

    serve(tmp_path, story, policy=policy)


@pytest.mark.parametrize("hashed", [0, 1, 5, 6, 7, -1, -7, 2**63 - 1, -(2**63)])
def test_a_positive_or_negative_hash_selects_the_partition(hashed: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=7)
        result = await puts(await broker.peer(), "events", partition=BY_HASH, hashed=hashed)
        assert (result.error, result.partition) == (0, hashed % 7)
        assert broker.partitions.of("events")[hashed % 7].high_watermark == 1

    serve(tmp_path, story)


def test_each_partition_of_a_request_has_its_own_result(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("one", partitions=2)
        await broker.topic("two")
        entries: list[Any] = [(0, 0, batch(), None), (BY_HASH, 3, batch(), None), (5, 0, batch(), None)]
        body = write_puts_request(
            [("one", entries), ("two", [(0, 0, b"no batch", None)]), ("none", [(BY_HASH, 1, batch(), None)])],
            acks=-1,
            timeout_ms=1000,
        )
        answer = parse_puts_response(await (await broker.peer()).ask_raw("Puts", 0, body), 0)
        assert [(topic, [(result.partition, result.error) for result in results]) for topic, results in answer] == [
            ("one", [(0, 0), (1, 0), (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number)]),
            ("two", [(0, ErrorCode.INVALID_RECORD.number)]),
            ("none", [(BY_HASH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number)]),
        ]
        assert all(result.message for _, results in answer for result in results if result.error)

    serve(tmp_path, story)


@pytest.mark.parametrize("acks", [-2, 2])
def test_invalid_acks_are_refused_and_nothing_is_stored(acks: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        result = await puts(await broker.peer(), "events", acks=acks)
        assert result.error == ErrorCode.INVALID_REQUIRED_ACKS.number
        assert broker.partitions.of("events")[0].high_watermark == 0

    serve(tmp_path, story)


def test_acks_0_has_no_response_and_a_failure_closes_the_connection(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        for topic in ("events", "none"):
            body = write_puts_request([(topic, [(0, 0, batch(), None)])], acks=0, timeout_ms=1000)
            peer.send(request_frame("Puts", 0, body=body))
        await peer.lost()
        assert not peer.received
        assert broker.partitions.of("events")[0].high_watermark == 1

    serve(tmp_path, story)


def test_decoded_batches_of_puts_and_produce_are_stored_in_order(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(cleanup_policy="compact")
        peer = await broker.peer()
        for number in range(6):
            records = batch(b"%d" % number, keys=[b"k%d" % number])
            result = await (puts if number % 2 else produce)(peer, "events", records)
            assert result.base_offset == number
        keyless = await puts(peer, "events", batch(b"v"))
        assert keyless.error == ErrorCode.INVALID_RECORD.number

    serve(tmp_path, story)


def test_only_the_broker_writes_to_an_internal_topic(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.partitions.create("__own", internal=True)
        result = await puts(await broker.peer(), "__own", partition=BY_HASH)
        assert result.error == ErrorCode.INVALID_TOPIC.number

    serve(tmp_path, story)


def test_a_put_in_flight_during_a_change_of_leader_may_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("events")
        (partition,) = broker.partitions.of("events")
        monkeypatch.setattr(GroupCommit, "request", lambda *_: None)  # Nothing is flushed from here on.
        answering = asyncio.ensure_future(puts(await broker.peer(), "events"))
        await until(lambda: partition.waiting > 0)
        await move_leader(broker.catalog, broker.partitions, ("events", 0), ELSEWHERE.node_id)
        result = await answering
        assert (result.error, result.not_appended) == (ErrorCode.NOT_LEADER_OR_FOLLOWER.number, False)

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)
