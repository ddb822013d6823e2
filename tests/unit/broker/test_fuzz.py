"""Sends mutated requests to the real dispatch table: each gets a response or a close, quickly, and leaves nothing.

The test runs for a few seconds over fixed seeds. MILLSTREAM_FUZZ_SECONDS makes it longer; it then begins at
MILLSTREAM_FUZZ_SEED or at a random seed. A failure names its seed.
"""

import asyncio
import logging
import os
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from builders.batches import batch, numbered_batch
from builders.requests import request_frame
from builders.served import ServedBroker, produce, serve
from millstream.broker.net.connection import ClientConnection
from millstream.wire.fetch import FetchPartition
from millstream.wire.fetch_client import write_fetch_request
from millstream.wire.framing import SIZE
from millstream.wire.produce import write_produce_request

SECONDS = float(os.environ.get("MILLSTREAM_FUZZ_SECONDS", "3"))
FIRST_SEED = int(
    os.environ.get("MILLSTREAM_FUZZ_SEED", Random().randrange(2**32) if "MILLSTREAM_FUZZ_SECONDS" in os.environ else 1)
)
SLOWEST_S = 10.0
"""No frame may hold the loop for long; generous, because test machines are busy."""

NASTY = (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x00\x00\x00\x00")


class Sink(asyncio.Transport):
    """The client's side of a connection: accepts all data and records whether it was closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("fuzzer", 1)})
        self.sent_bytes = 0
        self.is_over = False

    def write(self, data: Any) -> None:
        self.sent_bytes += len(data)

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def abort(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


def seeds_of_frames() -> list[bytes]:
    """Yield valid requests of every API, as the basis of mutations."""
    topics = {"topics": [{"name": "events"}, {"name": "other"}]}
    frames = [request_frame("Metadata", version, topics) for version in (1, 9, 12)]
    frames += [request_frame("ApiVersions", version) for version in (0, 3, 4)]
    for version in (3, 9, 12):
        body = write_produce_request(version, [("events", [(0, numbered_batch(3))])], acks=-1, timeout_ms=100)
        frames.append(request_frame("Produce", version, body=body))
    for version in (4, 7, 12):
        wants = [("events", [FetchPartition(0, 0, 1000), FetchPartition(1, 5, 1000)])]
        body = [write_fetch_request(version, wants, max_wait_ms=5, session_epoch=0)]
        frames.append(request_frame("Fetch", version, body=body))
    offsets = {"topics": [{"name": "events", "partitions": [{"partition_index": 0, "timestamp": -2}]}]}
    frames += [request_frame("ListOffsets", version, {"replica_id": -1, **offsets}) for version in (1, 7)]
    frames.append(request_frame("FindCoordinator", 4, {"coordinator_keys": ["a", "b"]}))
    frames.append(request_frame("InitProducerId", 4, {"transactional_id": None}))
    made = {"name": "fuzzed", "num_partitions": 1, "replication_factor": 1}
    frames.append(request_frame("CreateTopics", 7, {"topics": [made], "validate_only": True}))
    frames.append(request_frame("DeleteTopics", 6, {"topics": [{"name": "nothing"}]}))
    epochs = {"topics": [{"topic": "events", "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
    frames.append(request_frame("OffsetForLeaderEpoch", 4, epochs))
    frames.append(request_frame("Info", 0, {"client_version": "0.1"}))
    places = [{"name": "events", "partitions": [{"partition": 0, "offset": 0}, {"partition": 1, "offset": -3}]}]
    frames.append(request_frame("Subscribe", 0, {"group_id": "g", "otherwise": -2, "topics": places}))
    frames.append(request_frame("SubscriptionCommit", 0, {"subscription_id": 1, "topics": places}))
    page = {"topics": ["events", "x"], "cursor": {"topic_name": "events", "partition_index": 1}}
    frames += [request_frame(api, 0, page) for api in ("ServiceMap", "BackupMap")]
    frames.append(request_frame("WatchMember", 0, {"group_id": "g", "member_id": "m"}))
    frames.append(request_frame("Unsubscribe", 0, {"subscription_id": 1}))
    return frames


def mutated(random: Random, frame: bytes) -> bytes:
    """Return the frame with some bytes changed, removed or repeated, mostly with a matching size."""
    data = bytearray(frame[4:])
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data)) if data else 0
        match random.randrange(6):
            case 0 if data:
                data[at] = random.randrange(256)
            case 1:
                data[at : at + 4] = random.choice(NASTY)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = random.randbytes(random.randint(1, 20))
            case 4:
                data[at:at] = data[: random.randint(0, 200)]
            case _ if data:
                data[at] ^= 1 << random.randrange(8)
    size = len(data) if random.random() < 0.95 else random.randint(-5, 200_000)
    return SIZE.pack(size) + data


def feed(connection: ClientConnection, data: bytes) -> None:
    while data:
        buffer = connection.get_buffer(-1)
        piece = data[: len(buffer)]
        buffer[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        data = data[len(piece) :]


async def attack(broker: ServedBroker, seed: int, frames: list[bytes]) -> float:
    """Send a few mutated frames on one connection. Returns the longest time that one of them blocked the loop."""
    random = Random(f"millstream/fuzz/{seed}")
    connection, transport, slowest = ClientConnection(broker.listener.shared), Sink(), 0.0
    connection.connection_made(transport)
    for _ in range(random.randint(1, 5)):
        data = mutated(random, random.choice(frames))
        began = time.perf_counter()
        feed(connection, data)
        slowest = max(slowest, time.perf_counter() - began)
        if transport.is_over:
            break
        if random.random() < 0.5:
            await asyncio.sleep(0)
    connection.connection_lost(None)
    return slowest


@pytest.mark.timeout(SECONDS + 120)
def test_mutated_requests_get_a_response_or_a_close_and_leave_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        peer = await broker.peer()
        await produce(peer, "events", batch())
        frames = seeds_of_frames()
        first, tried, slowest = FIRST_SEED, 0, 0.0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            seed = first + tried
            slowest = max(slowest, await attack(broker, seed, frames))
            tried += 1
            errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
            assert not errors, f"seed {seed}: {errors[0].exc_info}"
            if tried % 200 == 0:
                assert (await produce(peer, "events", batch())).error == 0, f"up to seed {seed}"
        await broker.settle()
        assert broker.memory.incoming_bytes == 0, f"seeds {first} to {first + tried}"
        assert broker.memory.outgoing_bytes == 0, f"seeds {first} to {first + tried}"
        assert slowest < SLOWEST_S, f"seeds {first} to {first + tried}"

    serve(tmp_path, story, timeout_s=SECONDS + 60, auto_create=False)
