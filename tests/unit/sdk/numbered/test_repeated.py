"""Tests that each row is stored once and in order when writers are killed, repeated and doubled, and brokers crash."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.simulated_node import HOST
from millstream.catalog.memory import MemoryCatalog
from millstream.node.settings import BrokerSettings
from millstream.sdk.aio.client import AsyncClient, connect_async
from millstream.sdk.numbered import engine
from millstream.testing.simulated.entropy import SimulatedEntropy
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.machine import SimulatedMachines
from millstream.testing.simulated.workers import SimulatedWorkers
from millstream.testing.simulation.broker_service import BrokerService

PARTITIONS = 3
ROWS = 120
BATCH_BYTES = 200
TOPIC = "t"

Event = tuple[str, float]
EVENTS = st.lists(
    st.tuples(st.sampled_from(["wait", "twin", "kill", "cut", "crash", "power loss"]), st.floats(0.001, 0.4)),
    max_size=8,
)


class Ground:
    """A machine whose broker restarts after each crash, and the writers that use it."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self.random = Random(seed)
        self.entropy = SimulatedEntropy(Random(seed + 1))
        machines = SimulatedMachines(loop, self.random)
        self.network = machines.network
        machine = machines.add(HOST)
        self.clock = machine.clock
        settings = BrokerSettings(data=("/data",), host=HOST, operator_port=-1)
        catalog = MemoryCatalog(self.clock, self.entropy)
        self.broker = BrokerService(machine, loop, catalog, settings, restart_delay_s=0.05)
        self._clients = 0
        self.attempts: list[asyncio.Task[int]] = []

    @asynccontextmanager
    async def client(self, host: str | None = None) -> AsyncIterator[AsyncClient]:
        self._clients += 1
        async with connect_async(
            f"{HOST}:9092",
            network=self.network.host(host or f"client {self._clients}"),
            clock=self.clock,
            entropy=self.entropy,
            workers=SimulatedWorkers(self.loop, self.random),
            timeout=600,
            request_timeout=2,
        ) as client:
            yield client

    def begin(self, epoch: int, rows: pa.RecordBatch) -> None:
        """Start another attempt, which gets the rows in batches of random size."""
        self.attempts.append(asyncio.create_task(self._attempt(epoch, rows)))

    async def _attempt(self, epoch: int, rows: pa.RecordBatch) -> int:
        async with (
            self.client() as client,
            client.numbered_writer(
                TOPIC, b"task 7", epoch, batch_bytes=BATCH_BYTES + self.random.randrange(100), turn=epoch, timeout=600
            ) as writer,
        ):
            at = 0
            while at < rows.num_rows:
                count = self.random.randint(1, 50)
                await writer.write(rows.slice(at, count))
                at += count
                await asyncio.sleep(self.random.random() * 0.05)
            return await writer.finish()

    async def stored(self) -> list[list[bytes | None]]:
        found = []
        async with self.client() as client:
            for partition in range(PARTITIONS):
                values: list[bytes | None] = []
                offset = 0
                while portion := (await client.read(TOPIC, partition, offset, max_messages=10_000)).messages:
                    values += [message.value for message in portion]
                    offset = portion[-1].offset + 1
                found.append(values)
        return found


def rows_of(epoch: int) -> pa.RecordBatch:
    """Make rows of which some have a partition, and some of the others a key."""
    numbers = range(ROWS)
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"%d/%d" % (epoch, number) for number in numbers], pa.binary()),
            "key": pa.array([b"%d" % (number % 7) if number % 3 else None for number in numbers], pa.binary()),
            "partition": pa.array([number % PARTITIONS if number % 5 == 0 else None for number in numbers], pa.int32()),
        }
    )


async def play(ground: Ground, script: list[list[Event]]) -> list[list[bytes | None]]:
    """Run each epoch until one writer has finished it; the other writers continue into the next epoch."""
    async with ground.client() as client:
        await client.create_topic(TOPIC, partitions=PARTITIONS)
    for epoch, events in enumerate(script):
        rows = rows_of(epoch)
        for event, pause_s in events:
            if event == "twin":
                ground.begin(epoch, rows)
            elif event == "kill" and ground.attempts:
                ground.attempts[ground.random.randrange(len(ground.attempts))].cancel()
            elif event == "cut":
                ground.network.cut(HOST)
            elif event in ("crash", "power loss"):
                ground.broker.crash(power_loss=event == "power loss")
            await asyncio.sleep(pause_s)
        ground.begin(epoch, rows)
        assert await ground.attempts[-1] == ROWS
    for outcome in await asyncio.gather(*ground.attempts, return_exceptions=True):
        assert not isinstance(outcome, Exception), outcome
    ground.broker.crash(power_loss=True)
    return await ground.stored()


def run(seed: int, script: list[list[Event]]) -> list[list[bytes | None]]:
    loop = SimulatedLoop()
    ground = Ground(loop, seed)

    async def whole() -> list[list[bytes | None]]:
        keeper = asyncio.create_task(ground.broker.run())
        try:
            async with asyncio.timeout(3600):
                return await play(ground, script)
        finally:
            keeper.cancel()

    try:
        with patch.object(engine, "PIECE_BYTES", 400):  # Small, so that rows are in flight before the last is added.
            stored = loop.run_until_complete(whole())
        assert loop.failures == []
    finally:
        loop.end()
    return stored


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(EVENTS, min_size=1, max_size=3))
def test_each_row_is_stored_once_and_in_order_under_any_faults(seed: int, script: list[list[Event]]) -> None:
    stored = run(seed, script)
    assert stored == run(0, [[] for _ in script]), "as when nothing happens"
    assert sorted(value for values in stored for value in values if value is not None) == sorted(
        b"%d/%d" % (epoch, number) for epoch in range(len(script)) for number in range(ROWS)
    )
