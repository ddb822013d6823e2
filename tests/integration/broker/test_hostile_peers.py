"""Runs a real broker process among hostile peers: it keeps serving, bounds its memory and logs each event once."""

import resource
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from builders.batches import batch
from builders.requests import framed, request_frame
from millstream.testing.real_broker import RealBroker
from millstream.wire.framing import read_response_header
from millstream.wire.messages import read_response
from millstream.wire.produce import parse_produce_response, write_produce_request

TIMEOUT_S = 60.0
IDLE_PEERS = 5_000
IDLE_PEERS_MIN = 1_000
MEMORY_BYTES_MAX = 150 * 1024 * 1024
"""More than thousands of peers that do nothing useful may cost; far less than one buffer for each of them."""


@contextmanager
def many_open_files() -> Iterator[int]:
    """Raise the limit of open files for this process and its broker, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(broker: RealBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)


def read_frame(peer: socket.socket) -> memoryview:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        piece = peer.recv(65536)
        assert piece, "the broker ended the connection"
        data += piece
    return memoryview(data)[4:]


def write_and_read_back(broker: RealBroker) -> None:
    """Write and read as a well-behaved client, which must work whatever the hostile peers do."""
    with connect(broker) as peer:
        peer.sendall(request_frame("Metadata", 9, {"topics": [{"name": "events"}]}))
        frame = read_frame(peer)
        answer = read_response("Metadata", 9, frame, read_response_header("Metadata", 9, frame)[1])
        assert answer["topics"][0]["error_code"] == 0
        body = write_produce_request(9, [("events", [(0, batch())])], acks=-1, timeout_ms=30_000)
        peer.sendall(request_frame("Produce", 9, body=body))
        frame = read_frame(peer)
        ((_, (result,)),) = parse_produce_response(9, frame, read_response_header("Produce", 9, frame)[1])
        assert result.error == 0


def resident_bytes(broker: RealBroker) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS in /proc")


def is_ended(peer: socket.socket) -> bool:
    """True if the broker closes the connection without sending anything."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "first_bytes", [b"", struct.pack(">i", 100 * 1024 * 1024)], ids=["idle", "large announcements"]
)
def test_thousands_of_idle_connections_cost_little_and_delay_nobody(first_bytes: bytes, tmp_path: Path) -> None:
    with many_open_files() as limit, RealBroker(tmp_path / "data") as broker, ExitStack() as stack:
        count = min(IDLE_PEERS, limit - 500)
        assert count >= IDLE_PEERS_MIN
        before = resident_bytes(broker)
        peers = [stack.enter_context(connect(broker)) for _ in range(count)]
        for peer in peers:
            peer.sendall(first_bytes)
        write_and_read_back(broker)
        assert resident_bytes(broker) - before < MEMORY_BYTES_MAX
        if not first_bytes:
            readable, _, _ = select.select(peers[:500:50], [], [], 0)
            assert readable == [], "peers that are only quiet are left alone"


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        framed(b""),
        framed(struct.pack(">hhih", 999, 0, 1, -1)),
        framed(struct.pack(">hhih", 0, 99, 1, -1)),
        framed(struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\xff" * 50),
    ],
    ids=["negative", "oversize", "http", "tls", "empty", "unknown key", "unknown version", "garbage"],
)
def test_garbage_closes_the_connection_and_is_logged_once(data: bytes, tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        for _ in range(50):
            with connect(broker) as peer:
                peer.sendall(data)
                assert is_ended(peer)
        write_and_read_back(broker)
        assert broker.stop() == 0
        events = [
            line for line in broker.log_text().splitlines() if "connection cut off" in line or "TLS client" in line
        ]
        assert len(events) == 1


def test_memory_of_a_reader_that_never_reads_is_bounded(tmp_path: Path) -> None:
    """The reader requests far more than it takes. The broker stops dispatching its requests and serves others."""
    with RealBroker(tmp_path / "data", flush="os") as broker:
        write_and_read_back(broker)
        before = resident_bytes(broker)
        with connect(broker) as greedy:
            greedy.settimeout(0.5)
            wanted = request_frame("Metadata", 9, {"topics": None}) * 500
            sent = 0
            try:
                while sent < 64 * 1024 * 1024:
                    greedy.sendall(wanted)
                    sent += len(wanted)
            except TimeoutError:
                pass
            write_and_read_back(broker)
            assert sent < 64 * 1024 * 1024, "the broker stopped reading from it"
            assert resident_bytes(broker) - before < MEMORY_BYTES_MAX


def test_incomplete_frames_of_many_peers_do_not_delay_complete_ones(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker, ExitStack() as stack:
        body = write_produce_request(9, [("events", [(0, bytes(400_000))])], acks=-1, timeout_ms=30_000)
        whole = request_frame("Produce", 9, body=body)
        for size in range(1, 200):
            stack.enter_context(connect(broker)).sendall(whole[: size * 1000 + 3])
        began = time.monotonic()
        write_and_read_back(broker)
        assert time.monotonic() - began < TIMEOUT_S


def fill_and_stop(peer: socket.socket) -> None:
    """Send a huge frame as far as the broker takes it, then stop. The broker may close the connection."""
    peer.setblocking(False)
    start = struct.pack(">i", 100 * 1024 * 1024) + request_frame("Produce", 9)[4:]
    piece = bytes(1_000_000)
    with suppress(ConnectionError):
        sent = peer.send(start)
        while sent < 99 * 1024 * 1024:
            _, writable, _ = select.select([], [peer], [], 0.2)
            if not writable:
                return
            sent += peer.send(piece)


def test_incomplete_huge_frames_do_not_affect_other_peers(tmp_path: Path) -> None:
    """A dozen peers request more than all memory for frames, and reconnect when they are disconnected."""
    memory = ["--request-memory-bytes", "256MiB"]
    with RealBroker(tmp_path / "data", flush="os", extra_args=memory) as broker, ExitStack() as stack:
        for _ in range(2):
            for _ in range(12):
                fill_and_stop(stack.enter_context(connect(broker)))
            for _ in range(20):
                write_and_read_back(broker)


def test_a_frame_above_the_limit_of_its_api_closes_the_connection_at_once(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker, connect(broker) as peer:
        peer.sendall(struct.pack(">ihh", 100 * 1024 * 1024, 3, 9))
        assert is_ended(peer)
        write_and_read_back(broker)
