"""Tests message ids over the wire: a known id is stored once, and every writer gets its first offset."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch, batch_with_ids, damaged
from builders.disks import HeldDisk
from builders.partitions import read_all
from builders.requests import RawPeer, request_frame
from builders.served import ServedBroker, produce, puts, serve, until
from millstream.model.errors import ErrorCode
from millstream.model.ids import Offset
from millstream.model.message_id import EPOCH_MAX, MadeId
from millstream.partition.leadership import Leadership
from millstream.records.header import MADE_IDS, OWN_IDS, read_header
from millstream.storage.store import FlushPolicy
from millstream.wire.framing import read_response_header
from millstream.wire.produce import ProduceResult
from millstream.wire.puts import parse_puts_response, write_puts_request

DUPLICATE = ErrorCode.DUPLICATE_MESSAGE_ID.number
INVALID_ID = ErrorCode.INVALID_MESSAGE_ID.number
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH.number

both_policies = pytest.mark.parametrize("policy", [FlushPolicy.OS, FlushPolicy.ALWAYS])


async def put_ids(peer: RawPeer, *ids: bytes, values: Sequence[bytes] | None = None) -> ProduceResult:
    return await puts(peer, "events", batch_with_ids(*ids, values=values), ids=ids)


async def put_numbered(
    peer: RawPeer, sequence: int, *values: bytes, epoch: int = 0, producer_id: int = 7
) -> ProduceResult:
    records = batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return await puts(peer, "events", records)


async def retry(peer: RawPeer, made: MadeId, value: bytes = b"again") -> ProduceResult:
    return await put_ids(peer, made.encode(), values=[value])


def only_partition(broker: ServedBroker) -> Leadership:
    return broker.partitions.of("events")[0]


async def values(broker: ServedBroker) -> list[bytes | None]:
    return [record.value for record in await read_all(only_partition(broker))]


@both_policies
def test_an_id_is_stored_once_and_every_writer_gets_its_first_offset(policy: FlushPolicy, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        first, other = await broker.peer(), await broker.peer()
        await produce(first, "events", batch(b"before"))
        assert (await put_ids(first, b"a", b"b")).base_offset == 1
        for peer in (first, other):
            again = await put_ids(peer, b"c", b"b", b"a")
            assert (again.error, again.base_offset, again.known) == (DUPLICATE, -1, [(1, 2), (2, 1)])
        assert (await put_ids(other, b"c")).base_offset == 3
        assert await values(broker) == [b"before", b"a", b"b", b"c"]

    serve(tmp_path, story, policy=policy)


@both_policies
def test_concurrent_writers_with_one_id_store_it_once_and_get_one_offset(policy: FlushPolicy, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peers = [await broker.peer() for _ in range(8)]
        results = await asyncio.gather(*(put_ids(peer, b"one", values=[b"%d" % n]) for n, peer in enumerate(peers)))
        assert sorted(result.error for result in results) == [0] + [DUPLICATE] * 7
        assert {result.base_offset if not result.error else result.known[0][1] for result in results} == {0}
        assert len(await values(broker)) == 1

    serve(tmp_path, story, policy=policy)


def test_a_duplicate_is_answered_once_the_first_copy_is_durable(tmp_path: Path) -> None:
    disk = HeldDisk()

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        first, hasty, patient = [await broker.peer() for _ in range(3)]
        disk.may_flush.clear()
        try:
            storing = asyncio.ensure_future(put_ids(first, b"a"))
            await until(lambda: only_partition(broker).log.end_offset == 1)
            waiting = asyncio.ensure_future(put_ids(patient, b"a"))
            late = await puts(hasty, "events", batch_with_ids(b"a"), ids=[b"a"], timeout_ms=20)
            assert (late.error, late.known) == (ErrorCode.REQUEST_TIMED_OUT.number, [])
            assert not storing.done()
            assert not waiting.done()
        finally:
            disk.may_flush.set()
        assert (await storing).base_offset == 0
        assert (await waiting).known == [(0, 0)]

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS, disk=disk)


@pytest.mark.parametrize(
    ("ids", "in_records", "problem"),
    [
        ([b"a", b"a"], [b"a", b"a"], "records 0 and 1"),
        ([b"a"], [b"b"], "millstream.id"),
        ([b"a"], [b"a", b"b"], "2 records have 1 message ids"),
        ([], [b"a"], "1 records have 0 message ids"),
        ([b""], [b""], "empty"),
        ([b"x" * 256], [b"x" * 256], "256 bytes"),
        ([b"~mine"], [b"~mine"], "begin with ~"),
        ([b"~1.0.0.0.0", b"a"], [b"~1.0.0.0.0", b"a"], "the only message of its batch"),
        ([b"~1.0.5.0.0"], [b"~1.0.5.0.0"], "partition 5"),
    ],
)
def test_invalid_ids_are_refused_and_nothing_is_stored(
    ids: list[bytes], in_records: list[bytes], problem: str, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        result = await puts(await broker.peer(), "events", batch_with_ids(*in_records), ids=ids)
        assert result.error == INVALID_ID
        assert problem in (result.message or "")
        assert only_partition(broker).high_watermark == 0

    serve(tmp_path, story)


def test_ids_of_records_with_no_or_two_id_headers_are_refused(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        for records in (batch(b"v"), damaged(batch_with_ids(b"a"))):
            result = await puts(peer, "events", records, ids=[b"a"])
            assert result.error in (INVALID_ID, ErrorCode.CORRUPT_MESSAGE.number)
        acks_0 = await broker.peer()
        with pytest.raises(ConnectionError):
            await puts(acks_0, "events", batch_with_ids(b"a"), ids=[b"a"], acks=0)
        assert only_partition(broker).high_watermark == 0

    serve(tmp_path, story)


@pytest.mark.parametrize("bit", [MADE_IDS, OWN_IDS])
def test_produce_refuses_a_batch_with_the_attribute_for_ids(bit: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        stored = await put_ids(peer, b"a") if bit == OWN_IDS else await put_numbered(peer, 0, b"a")
        assert stored.error == 0
        found = only_partition(broker).reader.read(Offset(0), max_bytes=10_000)
        assert found is not None
        marked = found[0]
        assert isinstance(marked, bytes)
        assert read_header(marked).attributes & bit
        result = await produce(peer, "events", marked)
        assert result.error == ErrorCode.INVALID_RECORD.number

    serve(tmp_path, story)


@both_policies
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_retry_under_a_made_id_gets_the_stored_offset(place: int, policy: FlushPolicy, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        await put_numbered(peer, 0, b"a", b"b", b"c")
        await put_numbered(peer, 3, b"d")
        result = await retry(await broker.peer(), MadeId(7, 0, 0, 0, place))
        assert (result.error, result.known) == (DUPLICATE, [(0, place)])
        assert await values(broker) == [b"a", b"b", b"c", b"d"]
        # Nothing was fenced, so the producer can continue.
        assert (await put_numbered(peer, 4, b"e")).base_offset == 4

    serve(tmp_path, story, policy=policy)


def test_a_retry_of_a_message_that_its_batch_lacks_is_refused(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        await put_numbered(peer, 0, b"a")
        assert (await retry(peer, MadeId(7, 0, 0, 0, 1))).error == INVALID_ID

    serve(tmp_path, story)


@both_policies
@pytest.mark.parametrize("known", [True, False])
def test_a_retry_of_a_lost_batch_is_stored_and_fences_the_first_attempt(
    known: bool, policy: FlushPolicy, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        first = 1 if known else 0
        if known:
            await put_numbered(peer, 0, b"before")
        lost = [MadeId(7, 0, 0, first, place) for place in range(3)]
        for number, made in enumerate(lost):
            assert (await retry(peer, made, b"%d" % number)).base_offset == first + number
        for number, made in enumerate(lost):
            assert (await retry(peer, made)).known == [(0, first + number)]
        assert (await put_numbered(peer, first, b"0", b"1", b"2")).error == FENCED
        assert (await values(broker))[first:] == [b"0", b"1", b"2"]

    serve(tmp_path, story, policy=policy)


def test_a_first_attempt_stays_fenced_after_its_producer_is_forgotten(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        await put_numbered(peer, 0, b"stored")
        await retry(peer, MadeId(8, 0, 0, 0, 0), b"retried")
        only_partition(broker).replica.producers.clear()
        assert (await put_numbered(peer, 0, b"retried", producer_id=8)).error == FENCED
        again = await put_numbered(peer, 0, b"stored")
        assert (again.error, again.base_offset) == (0, 0)
        assert await values(broker) == [b"stored", b"retried"]

    serve(tmp_path, story)


def test_the_last_epoch_is_reserved_for_fencing(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        assert (await put_numbered(peer, 0, b"a", epoch=EPOCH_MAX)).error == FENCED
        assert (await put_numbered(peer, 0, b"a", epoch=EPOCH_MAX - 1)).error == 0
        assert (await retry(peer, MadeId(7, EPOCH_MAX - 1, 0, 1, 0))).error == 0
        assert (await retry(peer, MadeId(7, EPOCH_MAX - 1, 0, 1, 1))).error == 0
        assert (await put_numbered(peer, 1, b"b", b"c", epoch=EPOCH_MAX - 1)).error == FENCED

    serve(tmp_path, story)


def test_a_batch_without_ids_and_producer_is_stored_unchanged(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        for _ in range(2):
            assert (await puts(peer, "events", batch(b"v"))).error == 0
        assert only_partition(broker).replica.ids is None
        assert len(await values(broker)) == 2

    serve(tmp_path, story)


@pytest.mark.parametrize("settings", [{"cleanup_policy": "compact"}, {"compression_type": "zstd"}])
def test_message_ids_are_deduplicated_in_compacted_and_recompressed_topics(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(**settings)
        peer = await broker.peer()
        records = batch_with_ids(b"a", b"b", keys=[b"1", b"2"])
        assert (await puts(peer, "events", records, ids=[b"a", b"b"])).error == 0
        assert (await puts(peer, "events", records, ids=[b"a", b"b"])).known == [(0, 0), (1, 1)]
        for _ in range(2):
            numbered = batch(b"c", keys=[b"k"], producer_id=7, producer_epoch=0, base_sequence=0)
            assert (await puts(peer, "events", numbered)).base_offset == 2
        keyless = await puts(peer, "events", batch_with_ids(b"c"), ids=[b"c"])
        assert keyless.error == (ErrorCode.INVALID_RECORD.number if "cleanup_policy" in settings else 0)

    serve(tmp_path, story)


def test_pipelined_batches_of_a_producer_stay_in_order_during_an_id_index_search(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        await put_numbered(peer, 0, b"first")
        await put_ids(peer, b"a")
        partition = only_partition(broker)
        await partition.replica.save_ids()
        partition.replica.producers.clear()
        assert partition.replica.ids is not None
        partition.replica.ids.runs[0].filter = None  # As after a start, so that a worker searches the run.
        for number in range(5):
            records = batch(b"%d" % number, producer_id=9, producer_epoch=0, base_sequence=number)
            body = write_puts_request([("events", [(0, 0, records, None)])], acks=-1, timeout_ms=30_000)
            peer.send(request_frame("Puts", 0, correlation_id=number, body=body))
        offsets = []
        for _ in range(5):
            frame = await peer.frame()
            ((_, (result,)),) = parse_puts_response(frame, read_response_header("Puts", 0, frame)[1])
            offsets.append(result.base_offset)
        assert offsets == [2, 3, 4, 5, 6]
        assert (await put_numbered(peer, 0, b"first")).base_offset == 0

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)
