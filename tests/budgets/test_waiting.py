"""Tests the cost of many waiting reads of the SDK: requests, connections, tasks and memory."""

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import millstream
from budgets import table
from builders.simulated_node import HOST, SimulatedMachine, simulate
from millstream.node.settings import BrokerSettings
from millstream.records import batch
from millstream.sdk.aio.client import AsyncClient
from millstream.sdk.feed import fetched_chunk

WAIT_S = 100_000.0
OURS = tuple(str(Path(millstream.__file__).parent / place) for place in ("sdk/*", "wire/*", "model/*"))
FIGURES = (table.CONNECTIONS, table.SUBSCRIPTIONS, table.FETCHES, table.REQUESTS, table.DECODINGS)


class Asked:
    """Counts a client's requests and connections by its metrics."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        if name == "connections_opened":
            self.counts[table.CONNECTIONS] += amount

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        kinds = {"Subscribe": table.SUBSCRIPTIONS, "Fetch": table.FETCHES}
        self.counts[kinds.get(labels["api"], table.REQUESTS)] += 1


class Readers:
    """Readers that each read one topic from its beginning on, and wait for new messages."""

    def __init__(self, client: AsyncClient, topics: Sequence[str], count: int) -> None:
        self.reads = 0
        self._client = client
        self._tasks = [asyncio.ensure_future(self._run(topics[number % len(topics)])) for number in range(count)]

    async def _run(self, topic: str) -> None:
        offset = 0
        while True:
            portion = await self._client.read(topic, 0, offset, wait=WAIT_S)
            assert [message.offset for message in portion.messages] == [offset]
            offset = portion.next_offset
            self.reads += 1
            del portion

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Counting:
    """Counts requests, tasks and memory since the last check."""

    def __init__(self, asked: Asked, readers: int) -> None:
        self._asked = asked
        self._readers = readers
        self._tasks = len(asyncio.all_tasks())

    async def check(self, step: str) -> None:
        """Compare the counts with the budget, once all readers wait and helper tasks have ended."""
        await asyncio.sleep(10)
        gc.collect()
        counts, self._asked.counts = self._asked.counts, Counter()
        found: dict[str, float] = {figure: counts[figure] for figure in FIGURES}
        found[table.TASKS] = len(asyncio.all_tasks()) - self._tasks - self._readers
        kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, place) for place in OURS])
        found[table.BYTES_KEPT] = sum(row.size for row in kept.statistics("filename")) / self._readers
        table.check(step, found)


@pytest.mark.parametrize(
    ("count", "topic_count", "wait", "wake"),
    [
        (10_000, 10, table.WAIT_FEW_TOPICS, table.WAKE_FEW_TOPICS),
        (1_000, 1_000, table.WAIT_MANY_TOPICS, table.WAKE_MANY_TOPICS),
    ],
)
def test_waiting_reads_stay_within_their_budget(
    count: int, topic_count: int, wait: str, wake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked()
    decode = batch.decode_messages

    def counted(*arguments: Any, **more: Any) -> Any:
        asked.counts[table.DECODINGS] += 1
        return decode(*arguments, **more)

    monkeypatch.setattr(fetched_chunk, "decode_messages", counted)
    topics = [f"topic-{number}" for number in range(topic_count)]

    async def story(machine: SimulatedMachine) -> None:
        node = await machine.start()
        writer, client = await machine.client("writer"), await machine.connect("reader", asked)
        for topic in topics:
            await client.create_topic(topic, partitions=1)
            await writer.describe_topic(topic)
        asked.counts.clear()
        counting = Counting(asked, count)
        tracemalloc.start(1)
        try:
            readers = Readers(client, topics, count)
            await counting.check(wait)
            for topic in topics:
                await writer.put(topic, [b"news"], partition=0)
            await counting.check(wake)
        finally:
            tracemalloc.stop()
        assert readers.reads == count
        await readers.end()
        await client.close()
        writer.close()
        await node.stop()

    simulate(BrokerSettings(data=("/data",), host=HOST), story)
