"""Tests Produce: acknowledgements, their timing and errors."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from builders.batches import batch, damaged
from builders.disks import HeldDisk
from builders.loops import for_each
from builders.partitions import read_all
from builders.requests import request_frame
from builders.served import ServedBroker, fetch_one, produce, puts, serve, topic_ref, until
from millstream.broker.append_response import AppendResponse
from millstream.broker.dispatch.request import DeferredResponse
from millstream.broker.handlers import produce as produce_handler
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.partition.append_result import AppendResult
from millstream.partition.pending_appends import AppendDeadlines
from millstream.partition.producers import PER_PARTITION_MAX, SENDERS_MIN
from millstream.partition.watermark import Acknowledgement
from millstream.storage.store import FlushPolicy
from millstream.wire.framing import read_correlation_id
from millstream.wire.produce import ProduceResult, parse_produce_response, write_produce_request, write_produce_response

EVERY_VERSION = range(3, 14)


@pytest.mark.parametrize("policy", [FlushPolicy.OS, FlushPolicy.ALWAYS])
@for_each("version", EVERY_VERSION)
def test_batches_are_stored_in_order_and_their_offsets_answered(
    version: int, policy: FlushPolicy, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = topic_ref(await broker.topic(), version)
        peer = await broker.peer()
        for base_offset in (0, 2, 4):
            result = await produce(peer, topic, batch(b"a", b"b"), version=version)
            assert (result.error, result.base_offset, result.message) == (0, base_offset, None)
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        assert [record.value for record in await read_all(partition)] == [b"a", b"b"] * 3

    serve(tmp_path, story, policy=policy)


def test_requests_of_one_connection_are_appended_while_the_first_waits_for_its_flush(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        bodies = [
            write_produce_request(9, [("events", [(0, batch(b"%d" % number))])], acks=-1, timeout_ms=30_000)
            for number in range(50)
        ]
        peer.send(*[request_frame("Produce", 9, correlation_id=n, body=body) for n, body in enumerate(bodies)])
        offsets = []
        for _ in bodies:
            ((_, (result,)),) = parse_produce_response(9, (await peer.frame())[5:], 0)
            offsets.append(result.base_offset)
        assert offsets == list(range(50))

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


def test_a_flush_that_is_already_done_is_not_awaited(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        response = AppendResponse(write_produce_response, 9, AppendDeadlines(), broker.partitions)
        results = list[ProduceResult]()
        response.results.append(("events", results))
        for error in (None, MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR), None):
            acknowledgement = Acknowledgement(0)
            if error is None:
                acknowledgement.wake()
            else:
                acknowledgement.fail(error)
            response.add(results, 0, AppendResult(0, 0, acknowledgement))
        later = response.result(-1, timeout_ms=60_000)
        assert isinstance(later, DeferredResponse)
        assert later.is_done
        assert [result.error for result in results] == [0, ErrorCode.KAFKA_STORAGE_ERROR.number, 0]

    serve(tmp_path, story)


@for_each("version", [3, 8, 9, 12])
@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("unknown", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("events", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("events", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("not a name", 0, ErrorCode.INVALID_TOPIC),
    ],
)
def test_a_missing_partition_is_named_in_the_error(
    topic: str, partition: int, code: ErrorCode, version: int, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        result = await produce(await broker.peer(), topic, version=version, partition=partition)
        assert result.error == code.number
        assert (result.message is not None) == (version >= 8)

    serve(tmp_path, story)


def test_an_unknown_topic_id_has_its_own_error(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        result = await produce(await broker.peer(), TopicId(UUID(int=5)), version=13)
        assert result.error == ErrorCode.UNKNOWN_TOPIC_ID.number

    serve(tmp_path, story)


@pytest.mark.parametrize("acks", [-2, 2, 5])
def test_invalid_acks_are_refused_and_nothing_is_stored(acks: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        assert (await produce(peer, "events", acks=acks)).error == ErrorCode.INVALID_REQUIRED_ACKS.number
        assert (await fetch_one(peer, "events", 0)).high_watermark == 0

    serve(tmp_path, story)


@pytest.mark.parametrize("policy", [FlushPolicy.OS, FlushPolicy.ALWAYS])
def test_acks_0_is_never_answered(policy: FlushPolicy, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        body = write_produce_request(9, [("events", [(0, batch())])], acks=0, timeout_ms=0)
        peer.send(request_frame("Produce", 9, correlation_id=77, body=body))
        # The first received frame is the response to the next request.
        assert (await produce(peer, "events", acks=1)).base_offset == 1

    serve(tmp_path, story, policy=policy)


def test_a_failed_write_with_acks_0_closes_the_connection(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        body = write_produce_request(9, [("unknown", [(0, batch())])], acks=0, timeout_ms=1000)
        peer.send(request_frame("Produce", 9, body=body))
        await peer.lost()
        assert not peer.received

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (damaged(batch(b"x" * 100)), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"x" * 5000), ErrorCode.MESSAGE_TOO_LARGE),
        (b"", ErrorCode.INVALID_RECORD),
    ],
)
def test_invalid_batches_are_refused_with_a_text_and_others_are_stored(
    records: bytes, code: ErrorCode, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2, max_message_bytes="4000")
        peer = await broker.peer()
        body = write_produce_request(9, [("events", [(0, records), (1, batch())])], acks=-1, timeout_ms=1000)
        ((_, (bad, good)),) = parse_produce_response(9, await peer.ask_raw("Produce", 9, body), 0)
        assert bad.error == code.number
        assert bad.message
        assert (good.error, good.base_offset) == (0, 0)

    serve(tmp_path, story)


def test_a_flush_timeout_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    disk = HeldDisk()

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer, other = await broker.peer(), await broker.peer()
        disk.may_flush.clear()
        try:
            patient = asyncio.ensure_future(produce(other, "events", timeout_ms=60_000))
            result = await produce(peer, "events", timeout_ms=20)
            assert result.error == ErrorCode.REQUEST_TIMED_OUT.number
            assert result.message is not None
            assert "unknown" in result.message
            assert not patient.done(), "nothing is acknowledged that was not flushed"
            assert (await fetch_one(peer, "events", 0)).high_watermark == 0
        finally:
            disk.may_flush.set()
        # Both writes are stored, and the connection continues.
        assert (await patient).error == 0
        assert (await produce(peer, "events")).base_offset == 2

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS, disk=disk)


def test_requests_are_answered_in_order_when_only_the_first_waits_for_its_flush(tmp_path: Path) -> None:
    disk = HeldDisk()

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        disk.may_flush.clear()
        try:
            body = write_produce_request(9, [("events", [(0, batch())])], acks=-1, timeout_ms=60_000)
            peer.send(request_frame("Produce", 9, correlation_id=1, body=body))
            peer.send(request_frame("ApiVersions", 0, correlation_id=2))
            partition = broker.partitions.get("events", 0)
            assert partition is not None
            await until(lambda: partition.log.end_offset == 1 and broker.listener.counters.requests == 2)
            assert not peer.received
        finally:
            disk.may_flush.set()
        assert [read_correlation_id(await peer.frame()) for _ in range(2)] == [1, 2]

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS, disk=disk)


def test_a_retry_of_an_idempotent_producer_gets_the_first_offset(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        given = await peer.ask("InitProducerId", 4, {"transactional_id": None})
        records = batch(producer_id=given["producer_id"], producer_epoch=given["producer_epoch"], base_sequence=0)
        first, second = await produce(peer, "events", records), await produce(peer, "events", records)
        assert (first.base_offset, second.base_offset, second.error) == (0, 0, 0)

    serve(tmp_path, story)


@pytest.mark.parametrize("asked", [{"transactional_id": ""}, {"producer_id": 5}, {"producer_epoch": 5}])
def test_init_producer_id_refuses_an_empty_name_and_half_a_producer(asked: dict[str, Any], tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask("InitProducerId", 4, {"transactional_id": None} | asked)
        assert (answer["error_code"], answer["producer_id"]) == (ErrorCode.INVALID_REQUEST.number, -1)

    serve(tmp_path, story)


def test_a_transactional_write_is_refused(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        body = write_produce_request(9, [("events", [(0, batch())])], acks=-1, timeout_ms=1000, transactional_id="mine")
        ((_, (result,)),) = parse_produce_response(9, await peer.ask_raw("Produce", 9, body), 0)
        assert result.error == ErrorCode.INVALID_TXN_STATE.number

    serve(tmp_path, story)


def test_many_connections_share_flushes_and_all_are_answered(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=4)
        peers = [await broker.peer() for _ in range(20)]
        results = await asyncio.gather(
            *[produce(peer, "events", partition=number % 4) for number, peer in enumerate(peers) for _ in range(1)]
        )
        assert sorted(result.base_offset for result in results) == sorted(list(range(5)) * 4)

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


@pytest.mark.parametrize("late", [False, True], ids=["flushed", "timed out"])
def test_a_response_that_cannot_be_encoded_closes_only_its_connection(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = iter((False, True, True))

    def write(*args: Any) -> Any:
        if not next(written):
            raise RuntimeError("a bug")
        return write_produce_response(*args)

    monkeypatch.setattr(produce_handler, "write_produce_response", write)

    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        first, second = await broker.peer(), await broker.peer()
        timeout_ms = 0 if late else 30_000
        waiting = asyncio.ensure_future(produce(first, "events", timeout_ms=timeout_ms))
        other = asyncio.ensure_future(produce(second, "events", partition=1, timeout_ms=timeout_ms))
        with pytest.raises((EOFError, ConnectionError)):
            await waiting
        assert ErrorCode.of((await other).error) in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


@for_each("send", [produce, puts])
def test_producer_ids_that_a_connection_invents_displace_only_its_own(send: Any, tmp_path: Path) -> None:
    share = PER_PARTITION_MAX // SENDERS_MIN

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer, flood = await broker.peer(), await broker.peer()
        kept = batch(b"kept", producer_id=1, producer_epoch=0, base_sequence=0)
        assert (await send(peer, "events", kept)).base_offset == 0
        for producer_id in range(1_000, 1_000 + share + 100):
            invented = batch(producer_id=producer_id, producer_epoch=0, base_sequence=0)
            assert (await send(flood, "events", invented)).error == 0
        producers = broker.partitions.of("events")[0].replica.producers
        assert len(producers) == 1 + share
        assert (await send(peer, "events", kept)).base_offset == 0, "the retry is recognised"

    serve(tmp_path, story)
