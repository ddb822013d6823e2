"""Counts the cost of one step of a workload, on a broker in this process without sockets and threads.

Calls, memory and blocks are counted in separate passes, so that the counters do not disturb each other. The median pass
counts, because a step sometimes also pays for occasional maintenance. For kept memory the lowest pass counts: a step
leaves its own blocks in every pass, but threads of other tests (such as a Spark session) may add blocks in some.
"""

import asyncio
import gc
import statistics
import sys
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import millstream
from budgets import table
from budgets.counted_disk import CountedDisk, DiskCounts
from budgets.counted_loop import CountedLoop, LoopCounts
from budgets.hand_network import HandNetwork, HandPeer, SocketCounts
from builders.partitions import InlineWorkers
from builders.served import LONG_S, Ground, ServedBroker
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.groups.settings import GroupSettings
from millstream.storage.store import FlushPolicy

T = TypeVar("T")

WARM_UP = 20
STEPS = 20
PASSES = 7
_SOURCE = str(Path(millstream.__file__).parent)

Step = Callable[[], Awaitable[int]]
"""One unit of a workload; returns the number of payload bytes that it moved."""


class CountedWorkers(InlineWorkers):
    """Runs jobs in the caller, so that every run is the same."""

    def __init__(self) -> None:
        self.jobs = 0

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        self.jobs += 1
        return super().run(work)


@dataclass(slots=True)
class _Height:
    """Records the peak of allocated memory blocks over all samples."""

    blocks: int = 0

    def look(self) -> None:
        self.blocks = max(self.blocks, sys.getallocatedblocks())


class _HandServedBroker(ServedBroker):
    """A broker on a manually driven network."""

    network: HandNetwork

    async def start(self) -> None:
        await self.groups.start()
        await self.listener.start(self.network, "127.0.0.1", 0)


class CountedBroker:
    """Gives a story the broker, its peers and the counters."""

    def __init__(self) -> None:
        self.disk = DiskCounts()
        self.socket = SocketCounts()
        self.loop = LoopCounts()
        self.workers = CountedWorkers()
        self._height = _Height()
        self._target: tuple[int, asyncio.Future[None]] | None = None
        self._peers: list[HandPeer] = []
        self.network = HandNetwork(self.socket, self._answered)
        self.served: ServedBroker

    def peer(self) -> HandPeer:
        peer = self.network.dial()
        self._peers.append(peer)
        return peer

    def answers(self, count: int) -> "asyncio.Future[None]":
        """Return a future that is done after `count` more socket writes; its wakeup counts as a callback."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._target = (self.socket.writes + count, future)
        return future

    async def turn(self) -> None:
        """Let started work run until it waits; the two loop iterations that this takes are counted."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _answered(self) -> None:
        self._height.look()
        if self._target is not None and self.socket.writes >= self._target[0]:
            self._target[1].set_result(None)
            self._target = None

    async def count(self, step: Step) -> dict[str, float]:
        """Count the cost of one step, after a warm-up."""
        self.loop.stands_still = True  # Timers that have expired by now run during the warm-up.
        for _ in range(WARM_UP):
            await step()
        counted = await self._count_work(step)
        self.loop.stands_still = False
        counted[table.CALLS] = await count_calls(step)
        counted |= await self._count_blocks(step)
        counted[table.MEMORY_PEAK] = await _count_memory(step)
        return counted

    async def _count_work(self, step: Step) -> dict[str, float]:
        before, moved = self._totals(), 0
        for _ in range(STEPS):
            moved += await step()
        after = self._totals()
        counted = {name: (after[name] - before[name]) / STEPS for name in after}
        for name in (table.BYTES_WRITTEN, table.BYTES_READ):
            counted[name] *= STEPS / moved
        return counted

    def _totals(self) -> Mapping[str, int]:
        return {
            table.SOCKET_READS: self.socket.reads,
            table.SOCKET_WRITES: self.socket.writes,
            table.DISK_WRITES: self.disk.writes,
            table.DISK_READS: self.disk.reads,
            table.FLUSHES: self.disk.flushes,
            table.WORKER_JOBS: self.workers.jobs,
            table.BYTES_WRITTEN: self.disk.bytes_written,
            table.BYTES_READ: self.disk.bytes_read,
            table.TASKS: self.loop.tasks,
            table.ITERATIONS: self.loop.iterations,
            table.CALLBACKS: self.loop.callbacks,
            table.TIMERS: self.loop.timers,
        }

    async def _count_blocks(self, step: Step) -> dict[str, float]:
        height, kept = await self._count_blocks_once(step)
        for _ in range(1, PASSES):
            _, again = await self._count_blocks_once(step)
            kept = min(kept, again)
        return {table.BLOCKS_PEAK: height, table.BLOCKS_KEPT: kept}

    async def _count_blocks_once(self, step: Step) -> tuple[float, float]:
        """Return the peak of memory blocks during a step, and the blocks that remain after it."""
        heights: list[int] = []
        gc.collect()
        first = sys.getallocatedblocks()
        for _ in range(STEPS):
            before = self._height.blocks = sys.getallocatedblocks()
            await step()
            heights.append(self._height.blocks - before)
        gc.collect()
        return statistics.median(heights), (sys.getallocatedblocks() - first) / STEPS

    def hang_up(self) -> None:
        for peer in self._peers:
            peer.hang_up()


async def count_calls(step: Step) -> float:
    """Count the Python and compiled calls that Millstream's code makes or receives."""
    counts: list[int] = []
    for _ in range(PASSES):
        with _calls_counted() as calls:
            await step()
        counts.append(calls.total())
    return statistics.median(counts)


async def count_calls_at_once(work: Awaitable[object]) -> int:
    """Return the highest number of such calls between two switches of the event loop to another task."""
    most = 0

    async def beat(calls: Counter[str]) -> None:
        nonlocal most
        while True:
            most = max(most, calls.total())
            calls.clear()
            await asyncio.sleep(0)

    with _calls_counted() as calls:
        beating = asyncio.create_task(beat(calls))
        try:
            await work
        finally:
            beating.cancel()
    return max(most, calls.total())


@contextmanager
def _calls_counted() -> Iterator[Counter[str]]:
    """Count the calls of this thread, by kind."""
    calls: Counter[str] = Counter()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(_SOURCE):
            calls[event] += 1

    sys.setprofile(called)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def _count_memory(step: Step) -> float:
    """Return the peak memory of a step, above the level before it, per byte of payload."""
    heights: list[float] = []
    tracemalloc.start(1)
    try:
        for _ in range(PASSES):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            moved = await step()
            _, peak = tracemalloc.get_traced_memory()
            heights.append((peak - before) / moved)
    finally:
        tracemalloc.stop()
    return statistics.median(heights)


def run_counted(
    directory: Path, policy: FlushPolicy, story: Callable[[CountedBroker], Awaitable[None]], *, partitions: int = 1
) -> None:
    """Run a story against a counted broker with the topic `events`."""
    counted = CountedBroker()
    ground = Ground(directory, policy, CountedDisk(counted.disk, counted._height.look))
    ground.workers = ground.flush_workers = counted.workers

    async def run() -> None:
        async with ground.partitions(None) as opened:
            broker = _HandServedBroker(ground, opened, MemoryLimits(), {}, GroupSettings(initial_rebalance_delay_ms=0))
            broker.network = counted.network
            counted.served = broker
            await broker.start()
            try:
                await broker.topic("events", partitions)
                await asyncio.wait_for(story(counted), LONG_S)
            finally:
                counted.hang_up()
                await broker.stop()

    with asyncio.Runner(loop_factory=lambda: CountedLoop(counted.loop)) as runner:
        runner.run(run())
