"""A broker with a topic, and consumers of a group on hosts of their own, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from builders.simulated_node import HOST, SimulatedMachine, simulate
from penstock.node.settings import Settings
from penstock.sdk.client import WireClient
from penstock.sdk.group_consumer import GroupBatch, GroupConsumer, GroupOptions

SETTINGS = Settings(data=("/data",), host=HOST)
GROUP = "billing"
TOPIC = "orders"
LONG_S = 120.0
"""Of simulated time: more than any session lasts."""


class Ground:
    """A broker with a topic, and clients of it."""

    def __init__(self, machine: SimulatedMachine, client: WireClient) -> None:
        self.machine = machine
        self.network = machine.network
        self.client = client
        self.written = 0

    async def write(self, count: int = 10, partitions: Sequence[int] = (0, 1, 2, 3)) -> None:
        """So many messages to each of these partitions; each has a value of its own."""
        for partition in partitions:
            values = [b"%d" % (self.written + number) for number in range(count)]
            await self.client.put(TOPIC, values, partition=partition)
            self.written += count

    async def committed(self) -> dict[int, int]:
        found = await self.client.groups.offsets(GROUP)
        return {where.partition: row.offset for where, row in sorted(found.items())}


def play(story: Callable[[Ground], Awaitable[None]], *, partitions: int = 4) -> None:
    async def whole(machine: SimulatedMachine) -> None:
        node = await machine.start()
        client = await machine.client()
        await client.create_topic(TOPIC, partitions=partitions)
        await story(Ground(machine, client))
        client.close()
        await node.stop()

    simulate(SETTINGS, whole)


class Worker:
    """A consumer with a host of its own, and what it was handed."""

    def __init__(self, ground: Ground, name: str, options: GroupOptions | None = None) -> None:
        self.values: list[bytes] = []
        self.places: list[tuple[int, int]] = []
        self.name = name
        self.consumer: GroupConsumer
        self._ground = ground
        self._options = options or GroupOptions(auto_commit_s=1.0)
        self._enough = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> "Worker":
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready))
        await ready
        return self

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        client = await self._ground.machine.client(self.name)
        async with client.group_consumer(GROUP, [TOPIC], start="beginning", options=self._options) as self.consumer:
            ready.set_result(None)
            while not self._enough.is_set():
                batch = await self.consumer.poll(0.5)
                if batch is not None:
                    self.values += values_of(batch)
                    self.places += [(batch.partition, record.offset) for record in batch.records]
        client.close()

    @property
    def partitions(self) -> list[int]:
        return [where.partition for where in self.consumer.assignment]

    async def stop(self) -> None:
        assert self._task is not None
        self._enough.set()
        await self._task


def values_of(batch: GroupBatch) -> list[bytes]:
    return [record.value or b"" for record in batch.records]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110  # what is watched sets no event, and simulated time costs nothing
            await asyncio.sleep(0.05)


async def read(consumer: GroupConsumer, count: int) -> list[bytes]:
    """So many messages, at least."""
    values: list[bytes] = []
    async with asyncio.timeout(LONG_S):
        while len(values) < count:
            batch = await consumer.poll()
            assert batch is not None
            values += values_of(batch)
    return values


def numbers(values: Sequence[bytes]) -> list[int]:
    return sorted(map(int, values))
