"""An interrupted call of iterators loses no batch: an exception of a signal handler, or a cancellation.

Each test repeats one run with an interruption at every point of the calls at which one can happen. The engine is real;
its requests go to a group in memory.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import _base
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from builders.sdk.signal_points import SignalPoint
from millstream.model.names import TopicPartition
from millstream.model.roles import Role
from millstream.records.message import Message
from millstream.sdk.aio.facade import AsyncPortal
from millstream.sdk.aio.iterators import AsyncIterators
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.read_memory import UnlimitedMemory
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.iterating.call_engine import IteratorRequest
from millstream.sdk.iterating.requests import GroupIterator, IteratorBatch, IteratorCommit, IteratorMembership
from millstream.sdk.sync import facade, iterators, portal
from millstream.sdk.sync.iterators import Iterators
from millstream.sdk.sync.portal import Portal
from millstream.sdk.time_arguments import Times
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy

FILES = {module.__file__ for module in (iterators, facade, portal, _base)}
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1))
END = 6
"""The number of messages of each partition."""

BATCH = 2
LONG_S = 60.0


class AlarmError(TimeoutError):
    """The exception that the signal handler raises."""


def handle_alarm(number: int, frame: FrameType | None) -> None:
    raise AlarmError


class GroupInMemory:
    """Makes the calls of one client that owns all partitions, and stores its commits."""

    def __init__(self) -> None:
        self.committed = dict.fromkeys(PARTITIONS, 0)

    async def join(self, group_id: str, client_id: str, timeout_s: float) -> IteratorMembership:
        return IteratorMembership(1, True, heartbeat_s=LONG_S, session_s=LONG_S, owned=PARTITIONS)

    heartbeat = join

    async def leave(self, group_id: str, client_id: str, timeout_s: float) -> None:
        """Accept the call."""

    async def get(
        self, group_id: str, client_id: str, where: TopicPartition, wanted: IteratorRequest, timeout_s: float
    ) -> GroupIterator:
        return GroupIterator(*where, self.committed[where], BATCH, 1, Address("localhost", 1), b"")

    async def read(
        self,
        iterator: GroupIterator,
        max_bytes: int,
        timeout_s: float,
        wait_s: float,
        *,
        skips_bad_batches: bool,
        feed: PartitionFeed,
    ) -> IteratorBatch:
        await asyncio.sleep(0)
        end = min(iterator.offset + BATCH, END)
        if iterator.offset == end:
            await asyncio.sleep(LONG_S)
        messages = [made_message(iterator, offset) for offset in range(iterator.offset, end)]
        return IteratorBatch(iterator, messages, end, iterator._replace(offset=end))

    async def commit(
        self, group_id: str, client_id: str, iterator: GroupIterator, count: int, timeout_s: float
    ) -> IteratorCommit:
        await asyncio.sleep(0)
        where, end = where_of(iterator), iterator.offset + count
        self.committed[where] = max(self.committed[where], end)
        return IteratorCommit(end, None)


class Caller:
    """The part of a caller that the loop of the engine uses."""

    entropy = SystemEntropy()
    memory = UnlimitedMemory()
    cluster = workers = None


class OpenLifecycle:
    over = None

    def check(self) -> None:
        """Allow every call."""


class Context:
    """The part of a client that iterators use."""

    times = Times(SystemClock())
    lifecycle = OpenLifecycle()

    def new_caller(self, role: Role, owner: str) -> Caller:
        return Caller()

    def adopt(self, name: str, caller: Caller, end: Callable[[], object]) -> OpenLifecycle:
        return OpenLifecycle()


def where_of(iterator: GroupIterator) -> TopicPartition:
    return TopicPartition(iterator.topic, iterator.partition)


def made_message(iterator: GroupIterator, offset: int) -> Message:
    return Message(iterator.topic, iterator.partition, offset, 0, None, b"", ())


def made_iterators(kind: Any, portal: Portal | AsyncPortal, group: GroupInMemory) -> Any:
    reader = kind(portal, Context(), "orders", "readers", client_id="a", max_messages=BATCH)
    reader._engine._calls = group
    return reader


class Received:
    """The offsets that calls have returned; checks that no other offset is committed."""

    def __init__(self, group: GroupInMemory) -> None:
        self.count = 0
        self._group = group
        self._offsets: dict[TopicPartition, list[int]] = {where: [] for where in PARTITIONS}

    def add(self, batch: IteratorBatch | None) -> None:
        assert batch is not None, "a poll found no message, although some were not returned"
        self._offsets[where_of(batch.iterator)] += [message.offset for message in batch.messages]
        self.count += len(batch.messages)

    def check(self, at: object) -> None:
        for where, offsets in self._offsets.items():
            assert offsets == list(range(len(offsets))), (at, where)
            assert self._group.committed[where] <= len(offsets), (at, where)


@pytest.fixture
def client_portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


def interrupted_run(portal: Portal, at: int) -> bool:
    """Read all messages with an exception at point `at`; false if there are fewer points."""
    point = SignalPoint(at, handle_alarm, FILES)
    group = GroupInMemory()
    reader = made_iterators(Iterators, portal, group)
    received, is_finished = Received(group), False
    while not is_finished:
        with suppress(AlarmError), point.active():
            if received.count < END * len(PARTITIONS):
                received.add(reader.poll(LONG_S / 4))
            else:
                reader.finish()
                is_finished = True
        received.check(point.where)
    assert group.committed == dict.fromkeys(PARTITIONS, END), point.where
    portal.run(reader._engine.close())
    return point.was_reached


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_exception_of_a_signal_handler_loses_and_repeats_no_batch(client_portal: Portal) -> None:
    before = signal.signal(signal.SIGALRM, handle_alarm)
    points = 0
    try:
        while interrupted_run(client_portal, points):
            points += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert points > 50


async def cancelled_run(steps: int) -> bool:
    """Read all messages; cancel every poll after a number of event loop iterations. False if no poll took as long."""
    group, was_cancelled = GroupInMemory(), False
    reader = made_iterators(AsyncIterators, AsyncPortal(), group)
    received = Received(group)
    while received.count < END * len(PARTITIONS):
        polling = asyncio.ensure_future(reader.poll(LONG_S / 4))
        for _ in range(steps):
            await asyncio.sleep(0)
        was_cancelled |= polling.cancel()
        with suppress(asyncio.CancelledError):
            received.add(await polling)
        received.check(steps)
        with suppress(asyncio.CancelledError):
            if received.count < END * len(PARTITIONS):
                received.add(await reader.poll(LONG_S / 4))
        received.check(steps)
    await reader.finish()
    assert group.committed == dict.fromkeys(PARTITIONS, END), steps
    await reader._engine.close()
    return was_cancelled


def test_a_cancelled_poll_of_iterators_loses_and_repeats_no_batch() -> None:
    steps = 0
    while asyncio.run(cancelled_run(steps)):
        steps += 1
    assert steps > 3
