"""A signal handler that raises anywhere in a consumer's call loses and repeats no message.

Each test repeats one run with an exception at every point at which the interpreter runs signal handlers. The engine is
replaced by one that delivers a fixed set of chunks, and that notes which offsets could be committed.
"""

import signal
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from builders.disks import open_files_below
from builders.sdk.signal_points import SignalPoint
from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.sdk.consuming import arrow, decoding, delivered_buffer
from millstream.sdk.consuming.decoding import UndecodableError, decoder
from millstream.sdk.consuming.delivered_buffer import DeliveredBuffer
from millstream.sdk.consuming.engine import PollOutcome
from millstream.sdk.feed import fetched_chunk, local_files
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.local_files import LocalFileReader
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.responses import FetchedBatches
from millstream.sdk.sync import consumer as sync_consumer
from millstream.sdk.sync.consumer import Consumer
from millstream.seams.file_part import FilePlace

FILES = {module.__file__ for module in (sync_consumer, delivered_buffer, decoding, arrow, fetched_chunk, local_files)}
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("letters", 0))
END = 8
"""The number of messages of each partition."""

Offsets = list[tuple[TopicPartition, int]]


class AlarmError(TimeoutError):
    """The exception that the signal handler raises."""


def handle_alarm(number: int, frame: FrameType | None) -> None:
    raise AlarmError


@pytest.fixture(autouse=True)
def alarm_handler() -> Iterator[None]:
    """Install the handler, so that its exceptions can be told from those of other functions."""
    before = signal.signal(signal.SIGALRM, handle_alarm)
    yield
    signal.signal(signal.SIGALRM, before)


class FixedEngine:
    """Delivers the chunks of a test a few at a time, and notes the finished offsets, as a consumer's engine does."""

    def __init__(self, buffer: DeliveredBuffer, chunks: list[FetchedChunk]) -> None:
        self.finished: dict[TopicPartition, int] = {}
        """The offsets that an automatic commit could store."""
        self._buffer = buffer
        self._chunks = deque(chunks)

    async def messages(self, timeout_s: float | None, *, again: bool = False) -> PollOutcome:
        back = self._buffer.come_back()
        self.finished |= self._buffer.positions()
        assert self._buffer.damage is None
        self._chunks.extendleft(reversed(back))
        self._buffer.give([self._chunks.popleft() for _ in range(min(3, len(self._chunks)))])
        return PollOutcome.HERE if len(self._buffer) else PollOutcome.OVER


class OpenLifecycle:
    over = None

    def check(self) -> None:
        """Allow every call."""


class NoContext:
    clock = None
    """Calls without a timeout read no clock."""


class SameThreadPortal:
    """Runs coroutines that do not wait. A real portal runs them in a thread that handles no signals."""

    def __init__(self, point: SignalPoint) -> None:
        self._point = point

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        with self._point.paused():
            try:
                work.send(None)
            except StopIteration as end:
                return end.value
            raise AssertionError("the engine of a test does not wait")


def made_consumer(chunks: list[FetchedChunk], point: SignalPoint, values: Any) -> tuple[Consumer, FixedEngine]:
    consumer: Any = Consumer.__new__(Consumer)
    consumer._lifecycle = OpenLifecycle()
    consumer._context = NoContext()
    consumer._portal = SameThreadPortal(point)
    consumer._buffer = DeliveredBuffer(decoder(values), reads=True)
    consumer._engine = FixedEngine(consumer._buffer, chunks)
    return consumer, consumer._engine


def encoded(start: int, end: int) -> bytes:
    return bytes(encode_batch([b"%d" % offset for offset in range(start, end)], timestamps=1, base_offset=start))


def made_chunks(path: Path) -> list[FetchedChunk]:
    """Make chunks of several sizes that are in memory, and one for each partition that is in a local file."""
    chunks: list[FetchedChunk] = []
    feeds = [PartitionFeed(where, 0) for where in PARTITIONS]
    for start, end in ((0, 2), (2, 2), (2, 5)):
        for feed in feeds:
            chunks.append(
                FetchedChunk(
                    feed, start, next_offset=end, stored=memoryview(encoded(start, end) if end > start else b"")
                )
            )
    stored = b"".join(encoded(offset, offset + 1) for offset in range(5, END))
    path.write_bytes(stored)
    file = path.stat()
    place = FilePlace(str(path), file.st_dev, file.st_ino, 0, len(stored))
    for where in PARTITIONS:
        fetched = FetchedBatches(END, 0, memoryview(b""), place, END)
        near = LocalFileReader("here")
        chunks.append(FetchedChunk.unread(PartitionFeed(where, 5), fetched, near, is_packed=False))
    return chunks


def taken_by_poll(count: int, consumer: Consumer) -> Offsets | None:
    return [(TopicPartition(*each[:2]), each.offset) for each in consumer.poll(None, count)] or None


def taken_by_poll_batch(consumer: Consumer) -> Offsets | None:
    batch = consumer.poll_batch(None)
    if batch is None:
        return None
    where = TopicPartition(batch.topic, batch.partition)
    assert batch.next_offset >= batch.messages[-1].offset + 1
    return [(where, message.offset) for message in batch.messages]


def taken_by_poll_arrow(consumer: Consumer) -> Offsets | None:
    batch = consumer.poll_arrow(None)
    if batch is None:
        return None
    columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    return [(TopicPartition(topic, partition), offset) for topic, partition, offset in zip(*columns, strict=True)]


class Iterated:
    """Takes the messages of an iteration one by one; an iteration that raised is begun again."""

    def __init__(self, batches: bool = False) -> None:
        self._batches = batches
        self._iterator: Iterator[Any] | None = None

    def __call__(self, consumer: Consumer) -> Offsets | None:
        if self._iterator is None:
            self._iterator = consumer.batches() if self._batches else iter(consumer)
        iterator, self._iterator = self._iterator, None
        found = next(iterator, None)
        self._iterator = iterator
        if found is None:
            return None
        messages = found.messages if self._batches else [found]
        return [(TopicPartition(message.topic, message.partition), message.offset) for message in messages]


TAKEN: dict[str, Callable[[], Callable[[Consumer], Offsets | None]]] = {
    "poll": lambda: partial(taken_by_poll, 10_000),
    "poll of 3": lambda: partial(taken_by_poll, 3),
    "poll_batch": lambda: taken_by_poll_batch,
    "poll_arrow": lambda: taken_by_poll_arrow,
    "iteration": Iterated,
    "batches": partial(Iterated, batches=True),
}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read local files in several pieces."""
    monkeypatch.setattr(delivered_buffer, "PIECE_BYTES", 80)
    monkeypatch.setattr(delivered_buffer, "COLUMNS_BYTES", 80)
    monkeypatch.setattr(delivered_buffer, "MORE_BYTES", 0)
    monkeypatch.setattr(local_files, "MORE_BYTES", 100)


def interrupted_run(
    chunks: list[FetchedChunk], take: Callable[[Consumer], Offsets | None], at: int, values: Any
) -> bool:
    """Read all messages with an exception at point `at`; false if there are fewer points."""
    point = SignalPoint(at, handle_alarm, FILES)
    consumer, engine = made_consumer(chunks, point, values)
    found: Offsets = []
    has_more = True
    while has_more:
        positions = dict.fromkeys(PARTITIONS, 0) | {where: offset + 1 for where, offset in found}
        for finished in (engine.finished, consumer._buffer.finished()):
            assert all(offset <= positions[where] for where, offset in finished.items()), at
        taken: Offsets | None = []
        with suppress(AlarmError), point.active():
            taken = take(consumer)
        has_more = taken is not None
        found += taken or []
    assert engine.finished == dict.fromkeys(PARTITIONS, END), point.where
    for partition in PARTITIONS:
        assert [offset for where, offset in found if where == partition] == list(range(END)), (point.where, partition)
    return point.was_reached


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("call", "values"),
    [(call, None) for call in TAKEN] + [("poll of 3", int), ("poll_batch", int), ("iteration", int)],
)
def test_an_exception_of_a_signal_handler_loses_and_repeats_no_message(tmp_path: Path, call: str, values: Any) -> None:
    points = 0
    while interrupted_run(made_chunks(tmp_path / "log"), TAKEN[call](), points, values):
        points += 1
    assert points > 100
    assert open_files_below(tmp_path) == 0


def test_a_signal_handlers_exception_in_a_decoder_is_no_undecodable_error() -> None:
    def decode(value: bytes) -> int:
        if value == b"3" and not alarms:
            alarms.append(value)
            signal.raise_signal(signal.SIGALRM)
        if value == b"5":
            raise TimeoutError("the decoder's own")
        return int(value)

    alarms: list[bytes] = []
    consumer, _ = made_consumer(
        [FetchedChunk(PartitionFeed(PARTITIONS[0], 0), 0, next_offset=8, stored=memoryview(encoded(0, 8)))],
        SignalPoint(-1, handle_alarm, ()),
        decode,
    )
    assert [message.value for message in consumer.poll(None, 2)] == [0, 1]
    with pytest.raises(AlarmError):
        consumer.poll(None)
    assert [message.value for message in consumer.poll(None)] == [2, 3, 4]
    with pytest.raises(UndecodableError, match="offset 5"):
        consumer.poll(None)
    assert [message.value for message in consumer] == [6, 7]


def is_damaged(buffer: DeliveredBuffer) -> bool:
    return buffer.damage is not None


def test_a_damaged_chunk_after_an_interrupted_poll_is_reported_in_order() -> None:
    feed = PartitionFeed(PARTITIONS[0], 0)
    good, damaged = encoded(0, 2), bytearray(encoded(2, 4))
    damaged[-1] ^= 1
    buffer = DeliveredBuffer()
    buffer.give(
        [
            FetchedChunk(feed, 0, next_offset=2, stored=memoryview(good)),
            FetchedChunk(feed, 2, next_offset=4, stored=memoryview(damaged)),
        ]
    )
    buffer.begin()
    assert buffer.open()
    assert [message.offset for message in buffer.some(10)] == [0, 1]
    assert is_damaged(buffer)
    buffer.put_back()
    assert not is_damaged(buffer)
    buffer.begin()
    assert buffer.open()
    assert [message.offset for message in buffer.some(10)] == [0, 1]
    buffer.begin()
    assert not buffer.open()
    assert is_damaged(buffer)
    assert buffer.positions() == {PARTITIONS[0]: 2}
