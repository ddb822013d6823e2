"""A signal handler that raises anywhere in a subscription's call loses no message and leaves no window full.

The test repeats one run with an exception at every point of the calls at which the interpreter runs signal handlers.
The engine is real; its streams deliver a fixed set of chunks within a window.
"""

import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import _base
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

from builders.sdk.signal_points import SignalPoint
from millstream.model.names import TopicPartition
from millstream.model.roles import Role
from millstream.records.batch import encode_batch
from millstream.sdk.consuming import decoding
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.metrics import NO_METRICS
from millstream.sdk.sync import facade, portal, subscription
from millstream.sdk.sync.portal import Portal
from millstream.sdk.sync.subscription import Subscription
from millstream.sdk.time_arguments import Times
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy

FILES = {module.__file__ for module in (subscription, facade, portal, decoding, _base)}
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1))
END = 6
"""The number of messages of each partition."""

CHUNK = 2
LONG_S = 20.0

Offsets = list[tuple[TopicPartition, int]]


class AlarmError(TimeoutError):
    """The exception that the signal handler raises."""


def handle_alarm(number: int, frame: FrameType | None) -> None:
    raise AlarmError


class WindowStreams:
    """Queues the chunks of two partitions; each partition sends a chunk only when the one before it is finished."""

    def __init__(self) -> None:
        self.feeds = [PartitionFeed(where, 0) for where in PARTITIONS]
        self.queue: deque[FetchedChunk] = deque()
        self.finished = dict.fromkeys(PARTITIONS, 0)
        for where in PARTITIONS:
            self._send(where, 0)

    def _send(self, where: TopicPartition, offset: int) -> None:
        values = [b"%d" % each for each in range(offset, min(offset + CHUNK, END))]
        if values:
            stored = memoryview(bytes(encode_batch(values, timestamps=1, base_offset=offset)))
            feed = self.feeds[PARTITIONS.index(where)]
            self.queue.append(FetchedChunk(feed, offset, next_offset=offset + len(values), stored=stored))

    def delivered(self, chunk: FetchedChunk) -> None:
        assert self.queue.popleft() is chunk
        chunk.feed.advance(chunk.next_offset)

    def finish(self, where: TopicPartition, offset: int) -> None:
        if offset > self.finished[where]:
            self.finished[where] = offset
            self._send(where, offset)


class Caller:
    """The part of a caller that the reading half of the engine uses."""

    entropy = SystemEntropy()
    metrics = NO_METRICS
    cluster = None


class OpenLifecycle:
    over = None

    def check(self) -> None:
        """Allow every call."""


class Context:
    """The part of a client that a subscription uses."""

    clock = SystemClock()
    times = Times(clock)
    lifecycle = OpenLifecycle()

    def new_caller(self, role: Role, owner: str) -> Caller:
        return Caller()

    def adopt(self, name: str, caller: Caller, end: Callable[[], object], drop: Callable[[], object]) -> OpenLifecycle:
        return OpenLifecycle()


def made_subscription(portal: Portal, values: Any) -> tuple[Any, WindowStreams]:
    context: Any = Context()
    reader: Any = Subscription(portal, context, "orders", values=values)
    streams = reader._engine._streams = WindowStreams()
    reader._engine._starting.is_done = True
    return reader, streams


def taken_by_poll(reader: Subscription) -> Offsets:
    return [(TopicPartition(*each[:2]), each.offset) for each in reader.poll(LONG_S)]


def taken_by_poll_batch(reader: Subscription) -> Offsets:
    batch = reader.poll_batch(LONG_S)
    if batch is None:
        return []
    where = TopicPartition(batch.topic, batch.partition)
    assert batch.next_offset == batch.messages[-1].offset + 1
    return [(where, message.offset) for message in batch.messages]


class Iterated:
    """Takes the messages of an iteration one by one; an iteration that raised is begun again."""

    def __init__(self) -> None:
        self._iterator: Any = None

    def __call__(self, reader: Subscription) -> Offsets:
        if self._iterator is None:
            self._iterator = iter(reader)
        iterator, self._iterator = self._iterator, None
        message = next(iterator)
        self._iterator = iterator
        return [(TopicPartition(*message[:2]), message.offset)]

    def close(self) -> None:
        """End the iteration outside of the calls that are interrupted."""
        assert self._iterator is not None
        self._iterator.close()


TAKEN: dict[str, Callable[[], Callable[[Subscription], Offsets]]] = {
    "poll": lambda: taken_by_poll,
    "poll_batch": lambda: taken_by_poll_batch,
    "iteration": Iterated,
}


@pytest.fixture
def client_portal() -> Iterator[Portal]:
    before = signal.signal(signal.SIGALRM, handle_alarm)
    portal = Portal()
    yield portal
    portal.close()
    signal.signal(signal.SIGALRM, before)


def check(found: Offsets, streams: WindowStreams, reader: Any, at: object) -> None:
    """Check that every message was returned once and in order, and that no other message counts as taken."""
    for partition in PARTITIONS:
        offsets = [offset for where, offset in found if where == partition]
        assert offsets == list(range(len(offsets))), (at, partition)
        assert streams.finished[partition] <= len(offsets), (at, partition)
        assert reader.position(*partition) == len(offsets), (at, partition)


def interrupted_run(portal: Portal, take: Callable[[Subscription], Offsets], at: int, values: Any) -> bool:
    """Read all messages with an exception at point `at`; false if there are fewer points."""
    point = SignalPoint(at, handle_alarm, FILES)
    reader, streams = made_subscription(portal, values)
    found: Offsets = []
    while len(found) < END * len(PARTITIONS):
        taken: Offsets | None = None
        with suppress(AlarmError), point.active():
            taken = take(reader)
        assert taken != [], (point.where, "the window stays full")
        found += taken or []
        check(found, streams, reader, point.where)
    if isinstance(take, Iterated):
        take.close()
    assert reader.poll(0.0) == []
    assert streams.finished == dict.fromkeys(PARTITIONS, END), point.where
    return point.was_reached


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("call", TAKEN)
@pytest.mark.parametrize("values", [None, int])
def test_an_exception_of_a_signal_handler_neither_loses_messages_nor_stalls(
    client_portal: Portal, call: str, values: Any
) -> None:
    points = 0
    while interrupted_run(client_portal, TAKEN[call](), points, values):
        points += 1
    assert points > 50


def test_an_undecodable_value_is_skipped_after_its_error(client_portal: Portal) -> None:
    def decode(value: bytes) -> int:
        if value == b"1":
            raise TimeoutError("the decoder's own")
        return int(value)

    reader, streams = made_subscription(client_portal, decode)
    found: Offsets = []
    errors = 0
    take = partial(taken_by_poll, reader)
    while len(found) < (END - 1) * len(PARTITIONS):
        try:
            found += take()
        except decoding.UndecodableError:
            errors += 1
    assert (errors, sorted(found)) == (2, [(where, each) for where in PARTITIONS for each in (0, 2, 3, 4, 5)])
    reader.poll(0.0)
    assert streams.finished == dict.fromkeys(PARTITIONS, END)
