"""A disk that takes no more: writes are refused in clear words, readers go on, and space alone heals it.

The limit on the size of files stands in for a full disk: it can be set on the running broker by anybody, and writes
fail in the same place. It hits all files of the process, its log of events included.
"""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from builders.sdk.writing_client import WritingClient
from faults.load import create_topic, final_logs
from faults.record import SharedHistory
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
    """Batches of two messages that are acknowledged."""

    async def write(client: WritingClient) -> None:
        for number in range(count):
            entry = history.ask_write(mark, where, [b"%s/%d/%d" % (mark.encode(), number, i) for i in range(2)])
            places = await client.put(where.topic, entry.values, partition=where.partition)
            history.stored(entry, places[0].offset)

    ask(broker, write)


def refusal(broker: RealBroker, history: SharedHistory, where: TopicPartition, mark: str) -> MillstreamError:
    """What a write is answered while there is no space. It is in one attempt, so that it is the broker's answer."""

    async def write(client: WritingClient) -> MillstreamError:
        entry = history.ask_write(mark, where, [mark.encode() * 2000])
        batch = encode_batch(entry.values, timestamps=int(time.time() * 1000))
        try:
            await client.produce(where.topic, where.partition, batch)
        except MillstreamError as error:
            # Its answer leaves open whether the bytes are there after all; the checker accepts both.
            history.abandoned(entry, str(error))
            return error
        raise AssertionError("the write was acknowledged although there was no space")

    return ask(broker, write)


@pytest.mark.parametrize(
    ("flush", "ending"),
    [("always", "space"), ("interval", "space"), ("os", "space"), ("always", "killed"), ("os", "stopped")],
)
def test_a_full_disk_refuses_writes_and_heals_without_anybodys_help(tmp_path: Path, flush: str, ending: str) -> None:
    history = SharedHistory()
    with RealBroker(tmp_path / "data", flush=flush) as broker:
        (where,) = create_topic(broker.bootstrap, "full", 1)
        write_some(broker, history, where, "before", 50)
        limit_files(broker, 1)
        for number in range(3):
            assert refusal(broker, history, where, f"refused-{number}").code is ErrorCode.KAFKA_STORAGE_ERROR
        readable = final_logs(broker.bootstrap, [where])[where]
        assert readable.end == 100, "readers do not go on"
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


def test_a_topic_cannot_be_made_on_a_full_disk_and_can_be_made_later(tmp_path: Path) -> None:
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
