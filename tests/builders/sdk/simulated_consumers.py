"""Provides a broker with a topic, and public clients of it on hosts of their own, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from builders.partitions import move_leader
from builders.sdk.message_values import value_of, values_of
from builders.sdk.writing_client import WritingClient
from builders.simulated_node import HOST, SimulatedMachine, simulate
from millstream.model.names import TopicPartition
from millstream.node.node import Node
from millstream.node.settings import BrokerSettings
from millstream.records.message import Message
from millstream.sdk.aio.client import AsyncClient
from millstream.sdk.aio.consumer import AsyncConsumer
from millstream.sdk.feed.feed_set import FeedSet
from millstream.sdk.feed.partition_feed import PartitionFeed

SETTINGS = BrokerSettings(data=("/data",), host=HOST)
TOPIC = "orders"
GROUP = "billing"
LONG_S = 120.0
"""Seconds of simulated time, longer than any session timeout."""


class Ground:
    """A broker with a topic, a writer and a client for reading."""

    def __init__(self, machine: SimulatedMachine, node: Node, writer: WritingClient, client: AsyncClient) -> None:
        self.machine = machine
        self.network = machine.network
        self.node = node
        self.writer = writer
        self.client = client
        self.written: dict[int, list[bytes]] = {}
        self.count = 0

    async def write(self, count: int = 10, partitions: Sequence[int] = (0,)) -> None:
        """Write `count` messages with distinct values to each of these partitions."""
        for partition in partitions:
            values = [b"%d" % (self.count + number) for number in range(count)]
            await self.writer.put(TOPIC, values, partition=partition)
            self.written.setdefault(partition, []).extend(values)
            self.count += count

    async def restart(self, pause_s: float = 1.0) -> None:
        await self.node.stop()
        await asyncio.sleep(pause_s)
        self.node = await self.machine.start()

    async def elect_again(self, partition: int = 0) -> None:
        """Elect the broker again as the leader of a partition, under the next leader epoch."""
        partitions = self.node._partitions
        assert partitions is not None
        await move_leader(partitions._catalog, partitions, (TOPIC, partition), partitions.cluster.node_id)

    async def committed(self) -> dict[int, int]:
        found = await self.client.groups.offsets(GROUP)
        return {where.partition: row.offset for where, row in sorted(found.items())}


def play(
    story: Callable[[Ground], Awaitable[None]], *, partitions: int = 1, settings: BrokerSettings = SETTINGS
) -> None:
    async def whole(machine: SimulatedMachine) -> None:
        node = await machine.start()
        writer = await machine.client("writer")
        client = await machine.connect("reader")
        await client.create_topic(TOPIC, partitions=partitions)
        ground = Ground(machine, node, writer, client)
        async with asyncio.timeout(100 * LONG_S):
            await story(ground)
        await client.close()
        writer.close()
        await ground.node.stop()

    simulate(settings, whole)


async def read(consumer: AsyncConsumer, count: int) -> list[Message]:
    """Read `count` messages, one by one."""
    messages: list[Message] = []
    async with asyncio.timeout(LONG_S):
        async for message in consumer:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


async def every(consumer: AsyncConsumer) -> list[Message]:
    """Read all messages up to the consumer's stop position."""
    async with asyncio.timeout(LONG_S):
        return [message async for message in consumer]


def values(messages: Sequence[Message]) -> list[bytes]:
    return values_of(messages)


def place(partition: int = 0) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


def elect_after_lookup(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elect the broker again after the next lookup of leaders, so that the found leader epoch is outdated."""
    find = FeedSet.find_leaders

    async def find_then_elect(feeds: FeedSet) -> list[PartitionFeed]:
        failed = await find(feeds)
        monkeypatch.undo()
        await ground.elect_again()
        return failed

    monkeypatch.setattr(FeedSet, "find_leaders", find_then_elect)


class Worker:
    """A group member with a host of its own; it reads message by message and records what it got."""

    def __init__(self, ground: Ground, name: str, **options: Any) -> None:
        self.messages: list[Message] = []
        self.name = name
        self.consumer: AsyncConsumer
        self._ground = ground
        self._options: dict[str, Any] = {"group": GROUP, "start": "beginning", "auto_commit": 1.0} | options
        self._enough = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> "Worker":
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready))
        await ready
        return self

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        client = await self._ground.machine.connect(self.name)
        async with client.consumer(TOPIC, **self._options) as self.consumer:
            ready.set_result(None)
            while not self._enough.is_set():
                self.messages += await self.consumer.poll(0.5)
        await client.close()

    @property
    def values(self) -> list[bytes]:
        return values(self.messages)

    @property
    def partitions(self) -> list[int]:
        return [where.partition for where in self.consumer.assignment]

    async def stop(self) -> None:
        assert self._task is not None
        self._enough.set()
        await self._task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110  # what is watched sets no event, and simulated time costs nothing
            await asyncio.sleep(0.05)


def numbers(found: Sequence[Message] | Sequence[bytes]) -> list[int]:
    return sorted(int(value_of(each) if isinstance(each, Message) else each) for each in found)
