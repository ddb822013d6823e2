"""Tests that consumers on the broker's machine read its files and get the same messages as over the network."""

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import millstream
from builders.local_files import FilePositions, Row, rows, rows_of
from millstream.model.names import TopicPartition
from millstream.sdk.consuming import decompression
from millstream.sdk.feed import local_files
from millstream.seams.file_part import FilePlace
from millstream.seams.local_file_part import LocalPart
from millstream.testing.embedded import EmbeddedBroker

TOPIC = "orders"
SETTINGS = {"segment.bytes": str(4 * 1024 * 1024), "max.message.bytes": str(8 * 1024 * 1024)}
PARTITIONS = 2

Read = local_files._read


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(consumer_heartbeat_interval_ms=100) as broker, millstream.connect(broker.bootstrap) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS, settings=SETTINGS)
        fill(client, TOPIC)
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[millstream.Client]:
    with millstream.connect(broker.bootstrap) as client:
        yield client


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every batch count as cached, because the broker sends file positions only of batches in the page cache."""
    monkeypatch.setattr(LocalPart, "is_cached", lambda part: True)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[FilePlace]:
    """The file positions that were read, with or without success."""
    return FilePositions(monkeypatch).read


def fill(client: millstream.Client, topic: str) -> None:
    """Write several segments of small batches, compressed batches, and a batch larger than one read."""
    random = Random(1)
    for compression in ("none", "zstd", "gzip", "none"):
        values = [random.randbytes(1000) * 2 for _ in range(1000)]
        with client.producer(compression=compression, batch_bytes=200_000) as producer:
            for partition in range(PARTITIONS):
                producer.put_many(topic, values, keys=[b"%d" % number for number in range(1000)], partition=partition)
    with client.producer() as producer:
        producer.put(topic, random.randbytes(3_500_000), partition=0).result()
        producer.put_many(topic, [b"x" * 1000] * 1000, partition=0).result()


def consumer(client: millstream.Client, **options: Any) -> millstream.Consumer:
    return client.consumer(TOPIC, **({"start": "beginning", "stop": "latest"} | options))


def polled(reading: millstream.Consumer) -> list[Row]:
    found: list[Row] = []
    while messages := reading.poll(max_messages=700):
        found += rows(messages)
    return found


def columns(reading: millstream.Consumer) -> list[Row]:
    return [row for batch in reading.arrow() for row in rows_of(batch)]


def in_turns(reading: millstream.Consumer) -> list[Row]:
    """Read messages and Arrow batches in turns; neither may affect the other."""
    found: list[Row] = []
    while messages := reading.poll(max_messages=300):
        found += rows(messages)
        batch = reading.poll_arrow(0)
        found += [] if batch is None else rows_of(batch)
    return found


def from_async(broker: EmbeddedBroker, *, arrow: bool, **options: Any) -> list[Row]:
    async def read() -> list[Row]:
        async with await millstream.connect_async(broker.bootstrap) as client:
            reading = client.consumer(TOPIC, start="beginning", stop="latest", **options)
            if arrow:
                return rows_of(await reading.arrow_table())
            return rows([message async for message in reading])

    return asyncio.run(read())


@pytest.fixture(scope="module")
def sent(broker: EmbeddedBroker) -> list[list[Row]]:
    """The rows of each partition, as a consumer without local files receives them."""
    with millstream.connect(broker.bootstrap) as client:
        return by_partition(rows(consumer(client, local_files=False)))


def by_partition(found: list[Row]) -> list[list[Row]]:
    """Split rows by partition, keeping their order."""
    return [[row for row in found if row[0] == partition] for partition in range(PARTITIONS)]


FORMS: list[Callable[[millstream.Consumer], list[Row]]] = [rows, polled, columns, in_turns]


@pytest.mark.parametrize("form", FORMS)
def test_every_read_method_returns_the_sent_messages_when_it_reads_local_files(
    client: millstream.Client, places: list[FilePlace], sent: list[list[Row]], form: Callable[..., list[Row]]
) -> None:
    assert by_partition(form(consumer(client))) == sent
    assert len({place.inode for place in places}) > PARTITIONS


@pytest.mark.parametrize("arrow", [False, True])
def test_asyncio_consumers_read_from_files(
    broker: EmbeddedBroker, places: list[FilePlace], sent: list[list[Row]], arrow: bool
) -> None:
    assert by_partition(from_async(broker, arrow=arrow)) == sent
    assert len({place.inode for place in places}) > PARTITIONS


def test_without_local_files_no_file_is_read(
    broker: EmbeddedBroker, client: millstream.Client, places: list[FilePlace], sent: list[list[Row]]
) -> None:
    assert by_partition(rows(consumer(client, local_files=False))) == sent
    assert by_partition(from_async(broker, arrow=True, local_files=False)) == sent
    assert places == []


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (7, 8), (150, 2850), (3999, 4001), (4000, 4500), (990, 1010)])
@pytest.mark.parametrize("form", [rows, columns])
def test_a_range_from_files_ends_exactly_at_stop(
    client: millstream.Client, sent: list[list[Row]], form: Callable[..., list[Row]], start: int, stop: int
) -> None:
    reading = consumer(client, start=start, stop=stop, partitions=[0])
    assert form(reading) == sent[0][start:stop]
    assert reading.position(TOPIC, 0) == stop


def test_no_file_is_read_after_the_stop_position(client: millstream.Client, places: list[FilePlace]) -> None:
    assert len(rows(consumer(client, stop=10, partitions=[1]))) == 10
    assert len(places) == 1


@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize("is_seen", [lambda path: False, lambda path: "-0/" not in path], ids=["none", "one"])
def test_batches_of_unreadable_files_are_sent_over_the_network(
    broker: EmbeddedBroker,
    client: millstream.Client,
    sent: list[list[Row]],
    monkeypatch: pytest.MonkeyPatch,
    is_seen: Callable[[str], bool],
    arrow: bool,
) -> None:
    refused: list[str] = []

    def read(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
        if not is_seen(place.path):
            refused.append(place.path)
            raise PermissionError(errno.EACCES, "not yours")
        return Read(place, size_bytes, scratch)

    monkeypatch.setattr(local_files, "_read", read)
    assert by_partition((columns if arrow else rows)(consumer(client))) == sent
    assert local_files.MISSES_MAX <= len(refused) <= 2 * local_files.MISSES_MAX
    assert by_partition(from_async(broker, arrow=arrow)) == sent


@pytest.mark.parametrize("arrow", [False, True])
def test_a_file_replaced_under_the_same_name_is_requested_again(
    client: millstream.Client, sent: list[list[Row]], monkeypatch: pytest.MonkeyPatch, arrow: bool
) -> None:
    misled: list[str] = []

    def read(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
        if not misled:
            misled.append(place.path)
            os.rename(place.path, place.path + ".meant")
            shutil.copy(place.path + ".meant", place.path)
        return Read(place, size_bytes, scratch)

    monkeypatch.setattr(local_files, "_read", read)
    try:
        assert by_partition((columns if arrow else rows)(consumer(client))) == sent
    finally:
        os.rename(misled[0] + ".meant", misled[0])


def test_seeking_and_pausing_in_the_middle_of_a_file_lose_nothing(
    client: millstream.Client, places: list[FilePlace], sent: list[list[Row]]
) -> None:
    reading = consumer(client, stop=None)
    reading.pause((TOPIC, 1))
    assert rows(reading.poll(max_messages=10)) == sent[0][:10]
    reading.seek(5, (TOPIC, 0))
    assert rows(reading.poll(max_messages=10)) == sent[0][5:15]
    reading.pause((TOPIC, 0))
    reading.resume((TOPIC, 1))
    found: list[Row] = []
    while len(found) < len(sent[1]):
        found += rows(reading.poll())
    assert found == sent[1]
    reading.resume()
    found = []
    while len(found) < len(sent[0]) - 15:
        found += rows(reading.poll())
    assert found == sent[0][15:]
    assert places


def test_no_file_of_a_paused_partition_is_read_ahead(
    broker: EmbeddedBroker, places: list[FilePlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decompression, "READ_BYTES", 1)

    async def read() -> int:
        async with await millstream.connect_async(broker.bootstrap) as client:
            reading = client.consumer(TOPIC, start="beginning")
            paused = (await reading.poll(max_messages=1))[0].partition
            await reading.pause((TOPIC, paused))
            places.clear()
            end = (await client.offsets({(TOPIC, 1 - paused): "latest"}))[TopicPartition(TOPIC, 1 - paused)].offset
            while reading.position(TOPIC, 1 - paused) != end:
                assert {message.partition for message in await reading.poll()} == {1 - paused}
            return paused

    paused = asyncio.run(read())
    ahead = [place for place in places if f"-{paused}/" in place.path]
    assert len(ahead) <= 1 < len(places), "only what was begun before"


def test_the_read_ahead_thread_ends_with_the_consumer(client: millstream.Client) -> None:
    before = threading.enumerate()
    with consumer(client) as reading:
        assert reading.poll_arrow() is not None
        new = [each for each in threading.enumerate() if each not in before]
        (thread,) = (each for each in new if each.name == "millstream-reader")
    thread.join(10)
    assert not thread.is_alive()


def test_members_of_a_group_share_files_and_skip_nothing(client: millstream.Client, sent: list[list[Row]]) -> None:
    everything = {row[:2] for rows_of_one in sent for row in rows_of_one}
    found: set[tuple[int, int]] = set()
    first = consumer(client, stop=None, group="billing", auto_commit=0.05)
    found |= {row[:2] for row in rows(first.poll(max_messages=100))}

    def read(reading: millstream.Consumer) -> None:
        with reading:
            while len(found) < len(everything):
                found.update(row[:2] for row in rows(reading.poll(0.2, max_messages=100)))

    threads = [
        threading.Thread(target=read, args=[reading])
        for reading in (first, consumer(client, stop=None, group="billing", auto_commit=0.05))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == everything
    committed = client.groups.offsets("billing")
    assert {where.partition: row.offset for where, row in committed.items()} == {0: len(sent[0]), 1: len(sent[1])}


@pytest.mark.parametrize("form", [rows, columns])
def test_files_deleted_before_they_are_read_are_skipped(
    broker: EmbeddedBroker, client: millstream.Client, form: Callable[..., list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"short-lived-{form.__name__}"
    client.create_topic(topic, partitions=PARTITIONS, settings=SETTINGS)
    fill(client, topic)
    deleted: list[str] = []

    def read(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
        if not deleted:
            deleted.append(place.path)
            client.admin.delete_records({TopicPartition(topic, 0): 3900})
            while os.path.exists(place.path):
                broker.upkeep()
        return Read(place, size_bytes, scratch)

    monkeypatch.setattr(local_files, "_read", read)
    found = form(client.consumer(topic, start="beginning", stop="latest", partitions=[0]))
    assert [row[1] for row in found] == list(range(3900, 5001))
