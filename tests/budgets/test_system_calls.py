"""Tests the system calls of the real process, as counted by the kernel: all reads and writes of files and sockets.

There is one request at a time, so that the counts do not depend on timing.
"""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from budgets import table
from builders.batches import batch, numbered_batch
from builders.requests import request_frame
from millstream.testing.real_broker import RealBroker
from millstream.wire.fetch import FetchPartition
from millstream.wire.fetch_client import write_fetch_request
from millstream.wire.framing import SIZE, SIZE_BYTES
from millstream.wire.messages import read_response
from millstream.wire.produce import write_produce_request

LARGE = numbered_batch(950, size_bytes=1000)
SMALL = batch(b"." * 100)
WARM_UP = 20
STEPS = 200


class SyncPeer:
    """One blocking connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer = bytearray(2_000_000)

    def ask(self, frame: bytes) -> memoryview:
        self._socket.sendall(frame)
        (size,) = SIZE.unpack(self._receive(SIZE_BYTES))
        return self._receive(size)

    def close(self) -> None:
        self._socket.close()

    def _receive(self, size: int) -> memoryview:
        view = memoryview(self._answer)[:size]
        filled = 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            assert count, "the broker closed the connection"
            filled += count
        return view


def produce_frame(records: bytearray) -> bytes:
    body = write_produce_request(9, [("events", [(0, records)])], acks=-1, timeout_ms=30_000)
    return request_frame("Produce", 9, body=body)


def fetch_frame(offset: int) -> bytes:
    wants = [("events", [FetchPartition(0, offset, 1_000_000)])]
    return request_frame("Fetch", 12, body=[write_fetch_request(12, wants, max_wait_ms=0)])


def create_topic(peer: SyncPeer) -> None:
    topic = {"name": "events", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    request = {"topics": [topic], "timeout_ms": 30_000, "validate_only": False}
    answer = read_response("CreateTopics", 2, peer.ask(request_frame("CreateTopics", 2, request)), 4)
    assert [each["error_code"] for each in answer["topics"]] == [0]


def count(broker: RealBroker, step: Callable[[], object]) -> dict[str, float]:
    for _ in range(WARM_UP):
        step()
    before = _totals(broker.pid)
    for _ in range(STEPS):
        step()
    after = _totals(broker.pid)
    return {name: (after[name] - before[name]) / STEPS for name in after}


def _totals(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    known = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
    return {table.READ_FAMILY: known["syscr"], table.WRITE_FAMILY: known["syscw"]}


def large(peer: SyncPeer) -> Callable[[], object]:
    frame = produce_frame(LARGE)
    return lambda: peer.ask(frame)


def small(peer: SyncPeer) -> Callable[[], object]:
    frame = produce_frame(SMALL)
    return lambda: peer.ask(frame)


def fetch(peer: SyncPeer) -> Callable[[], object]:
    peer.ask(produce_frame(LARGE))
    frame = fetch_frame(0)

    def step() -> None:
        assert len(peer.ask(frame)) > len(LARGE)

    return step


@pytest.mark.parametrize(
    ("workload", "flush", "prepared"),
    [
        (table.ASK_LARGE, "os", large),
        (table.ASK_SMALL, "os", small),
        (table.ASK_FLUSHED, "always", small),
        (table.ASK_FETCH, "os", fetch),
    ],
    ids=["large", "small", "flushed", "fetch"],
)
def test_system_calls_of_a_request_stay_within_their_budget(
    workload: str, flush: str, prepared: Callable[[SyncPeer], Callable[[], object]], tmp_path: Path
) -> None:
    with RealBroker(tmp_path / "data", flush=flush) as broker:
        peer = SyncPeer(broker.port)
        try:
            create_topic(peer)
            table.check(workload, count(broker, prepared(peer)))
        finally:
            peer.close()
