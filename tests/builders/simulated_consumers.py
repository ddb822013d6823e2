"""A broker with a topic, and public clients of it on hosts of their own, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from builders.simulated_node import HOST, SimulatedMachine, simulate
from penstock.model.names import TopicPartition
from penstock.node.node import Node
from penstock.node.settings import Settings
from penstock.records.record import Message
from penstock.sdk.aio.client import AsyncClient
from penstock.sdk.aio.consumer import AsyncConsumer
from penstock.sdk.client import WireClient

SETTINGS = Settings(data=("/data",), host=HOST)
TOPIC = "orders"
LONG_S = 120.0
"""Of simulated time: more than any session lasts."""


class Ground:
    """A broker with a topic, somebody who writes, and a client to read with."""

    def __init__(self, machine: SimulatedMachine, node: Node, writer: WireClient, client: AsyncClient) -> None:
        self.machine = machine
        self.network = machine.network
        self.node = node
        self.writer = writer
        self.client = client
        self.written: dict[int, list[bytes]] = {}
        self._count = 0

    async def write(self, count: int = 10, partitions: Sequence[int] = (0,)) -> None:
        """So many messages to each of these partitions; each has a value of its own."""
        for partition in partitions:
            values = [b"%d" % (self._count + number) for number in range(count)]
            await self.writer.put(TOPIC, values, partition=partition)
            self.written.setdefault(partition, []).extend(values)
            self._count += count

    async def restart(self, pause_s: float = 1.0) -> None:
        await self.node.stop()
        await asyncio.sleep(pause_s)
        self.node = await self.machine.start()

    async def committed(self, group: str) -> dict[int, int]:
        found = await self.client.groups.offsets(group)
        return {where.partition: row.offset for where, row in sorted(found.items())}


def play(story: Callable[[Ground], Awaitable[None]], *, partitions: int = 1) -> None:
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

    simulate(SETTINGS, whole)


async def read(consumer: AsyncConsumer, count: int) -> list[Message]:
    """So many messages, one by one."""
    messages: list[Message] = []
    async with asyncio.timeout(LONG_S):
        async for message in consumer:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


async def every(consumer: AsyncConsumer) -> list[Message]:
    """All of a range that ends."""
    async with asyncio.timeout(LONG_S):
        return [message async for message in consumer]


def values(messages: Sequence[Message]) -> list[bytes]:
    return [message.value for message in messages]


def place(partition: int = 0) -> TopicPartition:
    return TopicPartition(TOPIC, partition)
