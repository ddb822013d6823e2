"""Consumers that read the broker's files step by step, and a recorder of the file positions they receive and read."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import pytest

import millstream
from millstream.sdk.feed import local_files
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.local_files import LocalFileReader
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.responses import FetchedBatches
from millstream.seams.file_part import FilePlace

WAIT_S = 30.0

T = TypeVar("T")


class Row(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def rows(messages: Iterable[Any]) -> list[Row]:
    return [Row(message.partition, message.offset, message.key, message.value) for message in messages]


def rows_of(table: Any) -> list[Row]:
    """Return the rows of a record batch or a table."""
    return [Row(*row) for row in zip(*(table.column(name).to_pylist() for name in Row._fields), strict=True)]


# Forms of reading: each starts a consumer and yields a function that takes the next few messages; none at the end.

Take = Callable[[], list[Row]]


class Form(Protocol):
    __name__: str

    def __call__(self, bootstrap: str, topic: str, **options: Any) -> AbstractContextManager[Take]: ...


@contextmanager
def one_by_one(bootstrap: str, topic: str, **options: Any) -> Iterator[Take]:
    with millstream.connect(bootstrap) as client, client.consumer(topic, **options) as consumer:
        consumer.start()
        messages = iter(consumer)
        yield lambda: rows(islice(messages, 1))


@contextmanager
def polled(bootstrap: str, topic: str, **options: Any) -> Iterator[Take]:
    with millstream.connect(bootstrap) as client, client.consumer(topic, **options) as consumer:
        consumer.start()
        yield lambda: rows(consumer.poll(WAIT_S, max_messages=50))


@contextmanager
def columns(bootstrap: str, topic: str, **options: Any) -> Iterator[Take]:
    with millstream.connect(bootstrap) as client, client.consumer(topic, **options) as consumer:
        consumer.start()

        def take() -> list[Row]:
            batch = consumer.poll_arrow(WAIT_S)
            return [] if batch is None else rows_of(batch)

        yield take


@contextmanager
def coroutines(bootstrap: str, topic: str, **options: Any) -> Iterator[Take]:
    """Consume on an event loop that keeps running between two takes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(2 * WAIT_S)

    async def started() -> tuple[millstream.AsyncClient, millstream.AsyncConsumer]:
        client = await millstream.connect_async(bootstrap)
        consumer = client.consumer(topic, **options)
        await consumer.start()
        return client, consumer

    client, consumer = run(started())
    try:
        yield lambda: rows(run(consumer.poll(WAIT_S, max_messages=50)))
    finally:
        run(consumer.close())
        run(client.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


FORMS: tuple[Form, ...] = (one_by_one, polled, columns, coroutines)


class FilePositions:
    """Records the file positions that brokers announce to consumers of this process, and the reads of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.announced: list[FilePlace] = []
        self.announced_end = 0
        """The offset after the last announced batch."""
        self.read: list[FilePlace] = []
        self.missed: list[FilePlace] = []
        """The positions whose read failed, because the file did not hold the batches any more."""
        unread, read_file = FetchedChunk.unread, local_files._read

        def announce(
            feed: PartitionFeed,
            fetched: FetchedBatches,
            near: LocalFileReader,
            *,
            is_packed: bool,
            stop_offset: int | None = None,
        ) -> FetchedChunk:
            assert fetched.place is not None
            self.announced.append(fetched.place)
            self.announced_end = max(self.announced_end, fetched.next_offset)
            return unread(feed, fetched, near, is_packed=is_packed, stop_offset=stop_offset)

        def read(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
            self.read.append(place)
            try:
                return read_file(place, size_bytes, scratch)
            except Exception:
                self.missed.append(place)
                raise

        monkeypatch.setattr(FetchedChunk, "unread", staticmethod(announce))
        monkeypatch.setattr(local_files, "_read", read)

    def wait_announced(self, offset: int) -> None:
        """Wait until brokers have announced everything before this offset."""
        wait_until(lambda: self.announced_end >= offset)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, "the condition did not become true in time"
        time.sleep(0.001)
