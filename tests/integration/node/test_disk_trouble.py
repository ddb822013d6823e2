"""Checks what a real broker reports to operators and clients when its disk fails."""

import asyncio
import json
import resource
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.command import Command
from builders.sdk.writing_client import WritingClient
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.batch import encode_batch
from millstream.testing.real_broker import RealBroker

WAIT_S = 60.0
SMALL_SEGMENTS = ("--segment-bytes", "16KiB")
BATCHES = 40


def health(broker: RealBroker) -> tuple[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.operator_port}/health", timeout=WAIT_S) as answer:
        found = json.loads(answer.read())
    return found["status"], found["partitions_refusing_writes"]


async def fill(broker: RealBroker) -> None:
    async with await WritingClient.connect(broker.bootstrap, timeout_s=WAIT_S) as client:
        await client.create_topic("logs", partitions=1)
        for number in range(BATCHES):
            await client.put("logs", [b"%d" % number + b"." * 1000])


async def add_topic(broker: RealBroker, name: str) -> None:
    async with await WritingClient.connect(broker.bootstrap, timeout_s=WAIT_S) as client:
        await client.put(name, [b"one"])


async def produce(broker: RealBroker, value: bytes) -> ErrorCode | None:
    """Produce once, without retries, and return the error code."""
    async with await WritingClient.connect(broker.bootstrap, timeout_s=WAIT_S) as client:
        try:
            await client.produce("logs", 0, encode_batch([value], timestamps=1_700_000_000_000))
        except MillstreamError as refused:
            return refused.code
    return None


async def read_through(broker: RealBroker) -> int:
    """Read all messages in sequence, and return their number."""
    async with await WritingClient.connect(broker.bootstrap, timeout_s=WAIT_S) as client:
        offset = 0
        while offset < BATCHES:
            fetched = await client.fetch("logs", 0, offset, max_wait_ms=10_000)
            offset = fetched.records[-1].offset + 1
        return offset


def segments(data: Path) -> list[Path]:
    found = sorted(data.glob("*-0/*.log"))
    assert len(found) > 2
    return found


def spoil(path: Path, position: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(b"XXXX")


def remove_checkpoint(data: Path) -> None:
    (data / "checkpoint").unlink()


def garble_checkpoint(data: Path) -> None:
    (data / "checkpoint").write_bytes(b"garbage")


@pytest.mark.parametrize("lose", [remove_checkpoint, garble_checkpoint])
def test_damage_quarantines_a_partition_when_the_checkpoint_is_lost(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    with RealBroker(tmp_path / "data", extra_args=SMALL_SEGMENTS) as broker:
        asyncio.run(fill(broker))
        broker.stop()
        lose(broker.data_dir)
        last = segments(broker.data_dir)[-1]
        spoil(last, 100)
        before = last.read_bytes()
        for _ in range(2):
            broker.start()
            assert health(broker) == ("degraded", 1)
            assert asyncio.run(produce(broker, b"more")) is ErrorCode.PARTITION_QUARANTINED
            broker.stop()
        assert last.read_bytes() == before
        assert "checkpoint unusable" in broker.log_text()


def truncate(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(3000)


@pytest.mark.parametrize("damage", [Path.unlink, truncate])
def test_a_segment_damaged_while_the_broker_runs_is_reported(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    with RealBroker(tmp_path / "data", extra_args=SMALL_SEGMENTS) as broker:
        asyncio.run(fill(broker))
        victim = segments(broker.data_dir)[1]
        Command(broker.bootstrap).succeed(
            "group", "reset", "readers", "--topic", "logs", "--partition", "0", "--to", "beginning", "--yes"
        )
        broker.restart()  # A restarted broker has no segment files open.
        assert health(broker) == ("ok", 0)
        damage(victim)
        for _ in range(2):
            with pytest.raises(MillstreamError) as refused:
                asyncio.run(read_through(broker))
            assert refused.value.code is ErrorCode.PARTITION_QUARANTINED
        assert health(broker) == ("degraded", 1)
        asyncio.run(add_topic(broker, "sound"))
        listed = Command(broker.bootstrap).run("topic", "list", "--json")
        assert {row["name"]: row["messages"] for row in json.loads(listed.output)["topics"]} == {
            "logs": None,
            "sound": 1,
        }
        described = Command(broker.bootstrap).succeed("group", "describe", "readers").output.decode()
        assert described.splitlines()[-1].split() == ["logs", "0", "0", "damaged", "-", "-"]
        moved = Command(broker.bootstrap).run("group", "reset", "readers", "--to", "latest", "--yes")
        assert (moved.code, moved.output) == (1, b"")
        assert "logs-0 is damaged" in moved.errors
        emptied = Command(broker.bootstrap).run("topic", "empty", "logs", "--yes")
        assert (emptied.code, emptied.output) == (1, b"")
        assert "logs-0 is damaged" in emptied.errors
        logged = [line for line in broker.log_text().splitlines() if "partition quarantined" in line]
        assert len(logged) == 1
        assert str(victim) in logged[0]


def test_a_nearly_full_disk_is_logged_and_degrades_health(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        asyncio.run(fill(broker))
        assert health(broker) == ("ok", 0)
        _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (200_000, hard))
        # Several attempts, because a stalled machine may outlast the 30 seconds in which a failure counts.
        assert any(health_after_a_refusal(broker) == ("degraded", 1) for _ in range(5))
        logged = [line for line in broker.log_text().splitlines() if "write failed" in line]
        assert "File too large" in logged[0]
        assert "writes recovered" in broker.log_text()


def health_after_a_refusal(broker: RealBroker) -> tuple[str, int]:
    """Fail a large write, succeed with a small one, and return the health."""
    assert asyncio.run(produce(broker, b"x" * 400_000)) is ErrorCode.KAFKA_STORAGE_ERROR
    while asyncio.run(produce(broker, b"small")) is not None:
        pass  # The repair is still running; the test's timeout limits the loop.
    return health(broker)
