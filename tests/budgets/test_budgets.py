"""Tests that requests stay within their budgets (`budgets.table`): system calls, copies, memory, loop iterations."""

from pathlib import Path

import pytest

from budgets import table
from budgets.counting import CountedBroker, run_counted
from budgets.hand_network import HandPeer
from builders.batches import batch, numbered_batch
from builders.requests import request_frame
from millstream.storage.store import FlushPolicy
from millstream.wire.fetch import FetchPartition
from millstream.wire.fetch_client import write_fetch_request
from millstream.wire.produce import write_produce_request

PEERS = 64
LARGE = numbered_batch(950, size_bytes=1000)
SMALL = batch(b"." * 100)
LONG_MS = 300_000
END = -1


def produce_frame(records: bytearray, partition: int = 0) -> bytes:
    body = write_produce_request(9, [("events", [(partition, records)])], acks=-1, timeout_ms=LONG_MS)
    return request_frame("Produce", 9, body=body)


def fetch_frame(offset: int, *, max_wait_ms: int = 0) -> bytes:
    wants = [("events", [FetchPartition(0, offset, 1_000_000)])]
    return request_frame("Fetch", 12, body=[write_fetch_request(12, wants, max_wait_ms=max_wait_ms)])


def take_answer(peer: HandPeer, *, least_bytes: int = 1) -> int:
    """Discard the answer and return its size."""
    size = sum(map(len, peer.answers))
    assert size >= least_bytes, "the answer has the requested data"
    peer.answers.clear()
    return size


def test_a_large_batch_is_appended_within_its_budget(tmp_path: Path) -> None:
    frame = produce_frame(LARGE)

    async def story(broker: CountedBroker) -> None:
        peer = broker.peer()

        async def step() -> int:
            peer.send(frame)
            take_answer(peer)
            return len(LARGE)

        table.check(table.PRODUCE_LARGE, await broker.count(step))

    run_counted(tmp_path, FlushPolicy.OS, story)


def test_a_large_batch_is_written_from_its_receive_buffer(tmp_path: Path) -> None:
    frame = produce_frame(LARGE)

    async def story(broker: CountedBroker) -> None:
        peer = broker.peer()
        peer.send(frame)
        broker.disk.keeps = broker.socket.keeps = True
        peer.send(frame)

        received_into, size = broker.socket.buffers[-1]
        assert size == len(frame) - 4, "one read received the whole frame, into a buffer of its own"
        (written,) = broker.disk.written
        assert isinstance(written, memoryview)
        assert written.obj is received_into, "the written bytes are a view of the received ones"
        assert len(written) == len(LARGE)

    run_counted(tmp_path, FlushPolicy.OS, story)


@pytest.mark.parametrize(
    ("workload", "partitions"), [(table.PRODUCE_FLUSHED, 1), (table.PRODUCE_FLUSHED_WIDE, 16)], ids=["one", "sixteen"]
)
def test_a_round_of_group_commit_stays_within_its_budget(workload: str, partitions: int, tmp_path: Path) -> None:
    frames = [produce_frame(SMALL, number % partitions) for number in range(PEERS)]

    async def story(broker: CountedBroker) -> None:
        peers = [broker.peer() for _ in range(PEERS)]

        async def step() -> int:
            answered = broker.answers(PEERS)
            for peer, frame in zip(peers, frames, strict=True):
                peer.send(frame)
            await answered
            for peer in peers:
                take_answer(peer)
            return PEERS * len(SMALL)

        table.check(workload, await broker.count(step))

    run_counted(tmp_path, FlushPolicy.ALWAYS, story, partitions=partitions)


def test_a_megabyte_is_fetched_from_the_page_cache_within_its_budget(tmp_path: Path) -> None:
    frames = [fetch_frame(950 * number) for number in range(16)]
    turns = iter(range(10_000))

    async def story(broker: CountedBroker) -> None:
        peer = broker.peer()
        for _ in frames:
            peer.send(produce_frame(LARGE))
            take_answer(peer)

        async def step() -> int:
            peer.send(frames[next(turns) % len(frames)])
            take_answer(peer, least_bytes=len(LARGE))
            return len(LARGE)

        table.check(table.FETCH_LARGE, await broker.count(step))

    run_counted(tmp_path, FlushPolicy.OS, story)


def test_fetched_batches_are_sent_without_a_copy(tmp_path: Path) -> None:
    async def story(broker: CountedBroker) -> None:
        peer = broker.peer()
        peer.send(produce_frame(LARGE))
        take_answer(peer)
        broker.disk.keeps = True
        peer.send(fetch_frame(0))

        read = max(broker.disk.read, key=len)
        sent = max(peer.answers, key=len)
        behind = sent.obj if isinstance(sent, memoryview) else sent
        assert behind is read, "the answer contains the buffer of the disk read itself"

    run_counted(tmp_path, FlushPolicy.OS, story)


def test_waiting_fetches_are_woken_within_their_budget(tmp_path: Path) -> None:
    frame = produce_frame(SMALL)
    end = 0

    async def story(broker: CountedBroker) -> None:
        writer = broker.peer()
        readers = [broker.peer() for _ in range(PEERS)]

        async def step() -> int:
            nonlocal end
            wait = fetch_frame(end, max_wait_ms=LONG_MS)
            answered = broker.answers(PEERS + 1)
            for reader in readers:
                reader.send(wait)
            await broker.turn()
            writer.send(frame)
            end += 1
            take_answer(writer)
            await answered
            for reader in readers:
                take_answer(reader, least_bytes=len(SMALL))
            return PEERS * len(SMALL)

        table.check(table.FETCH_WOKEN, await broker.count(step))

    run_counted(tmp_path, FlushPolicy.OS, story)


def subscribe_frame(partition: int = 0, correlation_id: int = 1) -> bytes:
    topics = [{"name": "events", "partitions": [{"partition": partition, "offset": END}]}]
    window = {"window_messages": 10_000_000, "window_bytes": 256 * 1024 * 1024}
    return request_frame("Subscribe", 0, {"topics": topics, **window}, correlation_id=correlation_id)


def test_a_small_message_is_pushed_within_its_budget(tmp_path: Path) -> None:
    frame = produce_frame(SMALL)

    async def story(broker: CountedBroker) -> None:
        writer = broker.peer()
        readers = [broker.peer() for _ in range(PEERS)]
        for reader in readers:
            reader.send(subscribe_frame())
            take_answer(reader)
        await broker.turn()

        async def step() -> int:
            sent = broker.answers(PEERS + 1)
            writer.send(frame)
            take_answer(writer)
            await sent
            for reader in readers:
                take_answer(reader, least_bytes=len(SMALL))
            return PEERS * len(SMALL)

        table.check(table.PUSH_SMALL, await broker.count(step))

    run_counted(tmp_path, FlushPolicy.OS, story)


def test_idle_subscriptions_do_not_raise_the_cost_of_an_active_one(tmp_path: Path) -> None:
    frame = produce_frame(SMALL)

    async def story(broker: CountedBroker) -> None:
        writer, reader = broker.peer(), broker.peer()
        for number in range(1_000):
            reader.send(subscribe_frame(partition=int(number > 0), correlation_id=number))
            take_answer(reader)
        for _ in range(1_000):
            await broker.turn()

        async def step() -> int:
            sent = broker.answers(2)
            reader.pause()
            writer.send(frame)
            take_answer(writer)
            reader.resume()
            await sent
            take_answer(reader, least_bytes=len(SMALL))
            return len(SMALL)

        table.check(table.PUSH_AMONG_IDLE, await broker.count(step))

    run_counted(tmp_path, FlushPolicy.OS, story, partitions=2)


def test_a_megabyte_is_pushed_within_its_budget(tmp_path: Path) -> None:
    frame = produce_frame(LARGE)

    async def story(broker: CountedBroker) -> None:
        writer, reader = broker.peer(), broker.peer()
        reader.send(subscribe_frame())
        take_answer(reader)
        await broker.turn()

        async def step() -> int:
            sent = broker.answers(2)
            writer.send(frame)
            take_answer(writer)
            await sent
            take_answer(reader, least_bytes=len(LARGE))
            return len(LARGE)

        table.check(table.PUSH_LARGE, await broker.count(step))

    run_counted(tmp_path, FlushPolicy.OS, story)


def test_check_names_the_figure_and_its_excess_when_it_is_over_its_budget() -> None:
    budgets = {"a workload": {"flushes": 1.0, "tasks": 0.0}}

    table.check("a workload", {"flushes": 1.0, "tasks": 0.0}, budgets)
    with pytest.raises(AssertionError, match=r"over budget: a workload\n  flushes: 3, allowed are 1 \(\+2\)$"):
        table.check("a workload", {"flushes": 3.0, "tasks": 0.0}, budgets)
    with pytest.raises(AssertionError, match="every figure has one limit"):
        table.check("a workload", {"flushes": 1.0}, budgets)
