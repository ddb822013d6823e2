"""Consumers that read the broker's files, step by step, and what they were told of those files."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import pytest

import millstream
from millstream.sdk.consuming import local_files
from millstream.sdk.consuming.local_files import LocalFileReader
from millstream.sdk.consuming.partition_reader import FetchedChunk, PartitionReader
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
    """Of a record batch or a table."""
    return [Row(*row) for row in zip(*(table.column(name).to_pylist() for name in Row._fields), strict=True)]


# Forms: each begins to read ahead, and what it gives takes the next few messages; none when there will be no more.

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
    """On an event loop that goes on between two takes."""
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


class Places:
    """What readers of this process were told of files, and what became of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[FilePlace] = []
        self.told_to = 0
        """Behind all that they were told of."""
        self.read: list[FilePlace] = []
        self.missed: list[FilePlace] = []
        """Of those that were to be read, the ones that were not there any more."""
        lying, read_file = FetchedChunk.lying, local_files._read

        def tell(
            reader: PartitionReader, fetched: FetchedBatches, near: LocalFileReader, *, is_packed: bool
        ) -> FetchedChunk:
            assert fetched.place is not None
            self.told.append(fetched.place)
            self.told_to = max(self.told_to, fetched.next_offset)
            return lying(reader, fetched, near, is_packed=is_packed)

        def read(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
            self.read.append(place)
            try:
                return read_file(place, size_bytes, scratch)
            except Exception:
                self.missed.append(place)
                raise

        monkeypatch.setattr(FetchedChunk, "lying", staticmethod(tell))
        monkeypatch.setattr(local_files, "_read", read)

    def wait_told(self, offset: int) -> None:
        """Until they were told of all before this offset."""
        wait_until(lambda: self.told_to >= offset)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, "this takes too long"
        time.sleep(0.001)
