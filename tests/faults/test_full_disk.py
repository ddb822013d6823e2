"""Tests a full disk: writes are refused with a clear error, reads continue, and free space alone ends the problem.

In most tests, a file size limit simulates the full disk: it can be set on a running broker without privileges, and
writes fail at the same place. It affects all files of the process, including its log file. The others fill a small
volume.
"""

import asyncio
import itertools
import json
import resource
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

import millstream
from builders.sdk.writing_client import WritingClient
from faults.load import create_topic, final_logs
from faults.record import SharedHistory
from faults.small_volume import BrokerOnVolume, small_volume
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.testing.real_broker import RealBroker

T = TypeVar("T")


def limit_files(broker: RealBroker, size_bytes: int) -> None:
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


def give_space(broker: RealBroker) -> None:
    limit_files(broker, resource.RLIM_INFINITY)


def ask(broker: RealBroker, work: Callable[[WritingClient], Awaitable[T]]) -> T:
    async def whole() -> T:
        async with WritingClient(broker.bootstrap) as client:
            return await work(client)

    return asyncio.run(whole())


def write_some(broker: RealBroker, history: SharedHistory, where: TopicPartition, mark: str, count: int) -> None:
    """Write acknowledged batches of two messages."""

    async def write(client: WritingClient) -> None:
        for number in range(count):
            entry = history.ask_write(mark, where, [b"%s/%d/%d" % (mark.encode(), number, i) for i in range(2)])
            places = await client.put(where.topic, entry.values, partition=where.partition)
            history.stored(entry, places[0].offset)

    ask(broker, write)


def refusal(broker: RealBroker, history: SharedHistory, where: TopicPartition, mark: str) -> MillstreamError:
    """Return the error of a write without disk space, from a single attempt, so that it is the broker's own error."""

    async def write(client: WritingClient) -> MillstreamError:
        entry = history.ask_write(mark, where, [mark.encode() * 2000])
        batch = encode_batch(entry.values, timestamps=int(time.time() * 1000))
        try:
            await client.produce(where.topic, where.partition, batch)
        except MillstreamError as error:
            # The error leaves open if the batch was stored after all; the checker accepts both.
            history.abandoned(entry, str(error))
            return error
        raise AssertionError("the write was acknowledged although there was no space")

    return ask(broker, write)


@pytest.mark.parametrize(
    ("flush", "ending"),
    [("always", "space"), ("interval", "space"), ("os", "space"), ("always", "killed"), ("os", "stopped")],
)
def test_a_full_disk_refuses_writes_until_there_is_space_again(tmp_path: Path, flush: str, ending: str) -> None:
    history = SharedHistory()
    with RealBroker(tmp_path / "data", flush=flush) as broker:
        (where,) = create_topic(broker.bootstrap, "full", 1)
        write_some(broker, history, where, "before", 50)
        limit_files(broker, 1)
        for number in range(3):
            assert refusal(broker, history, where, f"refused-{number}").code is ErrorCode.KAFKA_STORAGE_ERROR
        readable = final_logs(broker.bootstrap, [where])[where]
        assert readable.end == 100, "reads do not continue"
        if ending == "space":
            give_space(broker)
        else:
            broker.kill() if ending == "killed" else broker.stop()
            history.crashed()
            broker.start()
        write_some(broker, history, where, "after", 50)
        history.assert_kept(final_logs(broker.bootstrap, [where]))
        broker.restart()
        history.assert_kept(final_logs(broker.bootstrap, [where]))


def test_creating_a_topic_fails_on_a_full_disk_and_succeeds_later(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "first", 1)
        limit_files(broker, 1)
        with pytest.raises(MillstreamError):
            ask(broker, lambda client: client.create_topic("second", partitions=1, timeout_s=2))
        give_space(broker)
        (where,) = create_topic(broker.bootstrap, "second", 1)
        history = SharedHistory()
        write_some(broker, history, where, "after", 3)
        broker.restart()
        history.assert_kept(final_logs(broker.bootstrap, [where]))


def fill(broker: RealBroker, history: SharedHistory, where: TopicPartition) -> None:
    """Write until the volume has no room for a small batch."""

    async def write(client: WritingClient) -> None:
        for size in (100_000, 10_000, 1_000, 100):
            for number in itertools.count():
                entry = history.ask_write("fill", where, [b"%d/%d " % (size, number) + bytes(size)])
                try:
                    batch = encode_batch(entry.values, timestamps=int(time.time() * 1000))
                    produced = await client.produce(where.topic, where.partition, batch)
                except MillstreamError as error:
                    history.abandoned(entry, str(error))
                    break
                history.stored(entry, produced.base_offset)

    ask(broker, write)


def health(broker: RealBroker) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.operator_port}/health", timeout=60) as page:
        return cast(dict[str, Any], json.load(page))


def wait_until_writable(broker: RealBroker) -> None:
    while health(broker)["status"] != "ok":
        time.sleep(0.05)


@pytest.mark.parametrize("restart", ["none", "kill", "stop"])
def test_a_filled_volume_is_emptied_by_deletions_and_accepts_writes_again(tmp_path: Path, restart: str) -> None:
    volume = tmp_path / "volume"
    with small_volume(volume, "24m") as holder:
        if holder is None:  # The simulated disk of tests/unit/storage/test_disk_reserve.py covers it.
            return
        with BrokerOnVolume(volume / "data", holder, "--segment-bytes", "1MiB") as broker:
            history, kept_history = SharedHistory(), SharedHistory()
            (where,) = create_topic(broker.bootstrap, "full", 1)
            (kept,) = create_topic(broker.bootstrap, "kept", 1)
            write_some(broker, kept_history, kept, "kept", 3)
            fill(broker, history, where)
            assert health(broker)["status"] == "degraded"
            if restart != "none":
                broker.kill() if restart == "kill" else broker.stop()
                history.crashed()
                broker.start()
            history.assert_kept(final_logs(broker.bootstrap, [where]))
            with millstream.connect(broker.bootstrap) as client:
                client.delete_topic("full")
            wait_until_writable(broker)
            write_some(broker, kept_history, kept, "after", 3)
            kept_history.assert_kept(final_logs(broker.bootstrap, [kept]))


def test_retention_empties_a_filled_volume(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    with small_volume(volume, "24m") as holder:
        if holder is None:
            return
        with BrokerOnVolume(volume / "data", holder, "--segment-bytes", "1MiB", "--retention-bytes", "2MiB") as broker:
            history = SharedHistory()
            (where,) = create_topic(broker.bootstrap, "full", 1)
            fill(broker, history, where)
            wait_until_writable(broker)
            write_some(broker, history, where, "after", 3)


def test_group_requests_on_a_full_disk_report_the_disk_error(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        (where,) = create_topic(broker.bootstrap, "full", 1)
        offsets = [KafkaPartition(where.topic, where.partition, 0)]
        consumer = KafkaConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        consumer.commit(offsets=offsets, asynchronous=False)
        limit_files(broker, 1)
        for _ in range(3):
            with pytest.raises(KafkaException) as refused:
                consumer.commit(offsets=offsets, asynchronous=False)
            assert refused.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
        with millstream.connect(broker.bootstrap) as client:
            member = client.consumer("full", group="others")
            while "disk is full or failing" not in str(member.health()):
                assert member.poll(timeout=0.1) == []
            give_space(broker)
        consumer.close()
