"""Tests that consumers with file positions get the same messages as over the network when the files change."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import millstream
from builders.local_files import (
    FORMS,
    WAIT_S,
    FilePositions,
    Form,
    Row,
    Take,
    columns,
    coroutines,
    polled,
    wait_until,
)
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.partition.served.partitions import Partitions
from millstream.seams.disk import Disk
from millstream.seams.local_file_part import LocalPart
from millstream.storage.cleaning import segment_exchange
from millstream.storage.log.segment import SegmentState
from millstream.testing.embedded import EmbeddedBroker
from millstream.testing.real_broker import RealBroker

SEGMENT_BYTES = 512 * 1024
SETTINGS = {"segment.bytes": str(SEGMENT_BYTES)}
COMPACTED = SETTINGS | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
BATCH_BYTES = 100_000
VALUE_BYTES = 1000
ONE_BATCH = 90
"""Number of messages of one batch that is large enough for the broker to send its file position."""
KEYS = 400
COUNT = 4000
"""Number of messages that fill about eight segments."""
SOME_FORMS = (polled, columns, coroutines)
"""Iterating over single messages uses the same buffer as polling."""
SENT_AHEAD = 64 * 1024
"""The smallest prefetch of a consumer."""

is_cached = LocalPart.is_cached
_PADDING = Random(1).randbytes(VALUE_BYTES)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(consumer_heartbeat_interval_ms=100) as broker:
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
def places(monkeypatch: pytest.MonkeyPatch) -> FilePositions:
    return FilePositions(monkeypatch)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name derived from the test's name."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-200:]


class Written:
    """Writes to a topic with one partition, and keeps the written rows by offset."""

    def __init__(self, client: millstream.Client, topic: str, what: str = "first") -> None:
        self.rows: list[Row] = []
        self._client = client
        self._topic = topic
        self._what = what

    def put(self, count: int = COUNT) -> int:
        """Write more messages, with a few keys in rotation; returns the log end offset."""
        begin = len(self.rows)
        self.rows += [
            Row(0, offset, b"%d" % (offset % KEYS), (b"%s %d " % (self._what.encode(), offset)).ljust(20) + _PADDING)
            for offset in range(begin, begin + count)
        ]
        with self._client.producer(batch_bytes=BATCH_BYTES) as producer:
            keys, values = [row.key for row in self.rows[begin:]], [row.value for row in self.rows[begin:]]
            producer.put_many(self._topic, values, keys=keys, partition=0).result()
        return len(self.rows)

    def last_values(self) -> dict[bytes | None, bytes | None]:
        return {row.key: row.value for row in self.rows}


def served(broker: EmbeddedBroker) -> Partitions:
    partitions = broker._running().node._partitions
    assert partitions is not None
    return partitions


def clean(broker: EmbeddedBroker) -> None:
    """Run one compaction pass over all partitions."""
    partitions = served(broker)

    async def work() -> None:
        for partition in partitions.all():
            await partition.replica.save_ids()  # Segments with unsaved ids are not cleaned.
        await partitions.clean()

    broker._running().call(work)


def read_to(take: Take, end: int) -> list[Row]:
    """Read up to the message before `end`."""
    found: list[Row] = []
    while not found or found[-1].offset < end - 1:
        some = take()
        assert some, "there is more"
        found += some
    return found


def read_on(take: Take, found: list[Row]) -> None:
    """Append messages to `found` until there are no more."""
    while some := take():
        found += some


def assert_of_one_log(found: list[Row], written: Written) -> None:
    """Assert that the rows are in order, without duplicates, and as written."""
    assert all(one.offset < other.offset for one, other in pairwise(found))
    assert found == [written.rows[row.offset] for row in found]


def ahead(local_files: bool) -> dict[str, Any]:
    """Options of a consumer that gets all file positions, or else prefetches as little as possible."""
    return {"local_files": True} if local_files else {"local_files": False, "prefetch_bytes": SENT_AHEAD}


# Compaction.


@pytest.mark.parametrize("form", FORMS)
def test_files_that_compaction_replaces_before_reading_are_requested_again(
    broker: EmbeddedBroker, client: millstream.Client, places: FilePositions, topic: str, form: Form
) -> None:
    client.create_topic(topic, settings=COMPACTED)
    written = Written(client, topic)
    end = written.put()
    found: list[Row] = []
    with form(broker.bootstrap, topic, start="beginning") as take:
        for passes in (1, 2, 3):  # From the second pass on, a file may have the name and inode of an announced one.
            places.wait_announced(end - ONE_BATCH)
            for _ in range(passes):
                end = written.put(2 * KEYS)
                clean(broker)
            found += take()
        found += read_to(take, end)
    assert_of_one_log(found, written)
    assert {row.key: row.value for row in found} == written.last_values()
    assert [place for place in places.missed if Path(place.path).exists()], "another file has the name"
    assert len(found) < len(written.rows)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_announced_before_its_final_rename_is_read(
    broker: EmbeddedBroker,
    client: millstream.Client,
    places: FilePositions,
    topic: str,
    form: Form,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.create_topic(topic, settings=COMPACTED)
    written = Written(client, topic)
    end = written.put()
    is_decided, go_on, finish = threading.Event(), threading.Event(), segment_exchange.finish

    def finish_later(disk: Disk, log_path: str) -> SegmentState | None:
        is_decided.set()
        go_on.wait(WAIT_S)
        return finish(disk, log_path)

    monkeypatch.setattr(segment_exchange, "finish", finish_later)
    cleaning = threading.Thread(target=clean, args=[broker])
    cleaning.start()
    try:
        assert is_decided.wait(WAIT_S)
        with form(broker.bootstrap, topic, start="beginning") as take:
            places.wait_announced(end - ONE_BATCH)
            assert [place for place in places.announced if place.path.endswith(segment_exchange.CLEANED_SUFFIX)]
            go_on.set()
            cleaning.join()
            found = read_to(take, end)
    finally:
        go_on.set()
        cleaning.join()
    assert_of_one_log(found, written)
    assert {row.key: row.value for row in found} == written.last_values()
    assert places.missed


# Removed messages.


def by_deletion(client: millstream.Client, topic: str) -> None:
    """Move the log start into the middle of a file and of a batch."""
    client.admin.delete_records({TopicPartition(topic, 0): COUNT - 777})


def by_retention(client: millstream.Client, topic: str) -> None:
    client.admin.alter_settings("topic", topic, {"retention.bytes": str(2 * SEGMENT_BYTES)})


Removal = Callable[[millstream.Client, str], None]


@contextmanager
def cut(
    broker: EmbeddedBroker,
    client: millstream.Client,
    places: FilePositions,
    topic: str,
    form: Form,
    remove: Removal,
    local_files: bool,
    **options: Any,
) -> Iterator[tuple[Take, list[Row], int, Written]]:
    """Start a reader, and then remove its next messages together with their files."""
    client.create_topic(topic, settings=SETTINGS)
    written = Written(client, topic)
    end = written.put()
    with form(broker.bootstrap, topic, start="beginning", stop=end, **ahead(local_files), **options) as take:
        found = take()
        if local_files:
            places.wait_announced(end - ONE_BATCH)
        remove(client, topic)
        wait_until(lambda: is_cut(broker, topic))
        begin = served(broker).of(topic)[0].log.start_offset
        assert COUNT / 2 < begin < end - ONE_BATCH
        yield take, found, begin, written


def is_cut(broker: EmbeddedBroker, topic: str) -> bool:
    """Return True once messages are removed, with all files that have only such messages."""
    broker.upkeep()
    log = served(broker).of(topic)[0].log
    bases = [int(path.stem) for path in Path(log.path).glob("*.log")]
    return log.start_offset > 0 and sum(base <= log.start_offset for base in bases) == 1


@pytest.mark.parametrize("local_files", [True, False], ids=["files", "sent"])
@pytest.mark.parametrize("remove", [by_deletion, by_retention])
@pytest.mark.parametrize("form", SOME_FORMS)
def test_a_reader_of_deleted_files_continues_at_the_log_start(
    broker: EmbeddedBroker,
    client: millstream.Client,
    places: FilePositions,
    topic: str,
    form: Form,
    remove: Removal,
    local_files: bool,
) -> None:
    with cut(broker, client, places, topic, form, remove, local_files) as (take, found, begin, written):
        read_on(take, found)
    offsets = [row.offset for row in found]
    seen = next((number for number, offset in enumerate(offsets) if number != offset), len(offsets))
    assert 0 < seen < begin
    assert offsets == [*range(seen), *range(begin, COUNT)]
    assert_of_one_log(found, written)
    assert bool(places.missed) == local_files


@pytest.mark.parametrize("local_files", [True, False], ids=["files", "sent"])
@pytest.mark.parametrize("remove", [by_deletion, by_retention])
def test_removed_messages_are_raised_if_out_of_range_is_error(
    broker: EmbeddedBroker,
    client: millstream.Client,
    places: FilePositions,
    topic: str,
    remove: Removal,
    local_files: bool,
) -> None:
    case = cut(broker, client, places, topic, polled, remove, local_files, out_of_range="error")
    with case as (take, found, begin, written), pytest.raises(MillstreamError) as raised:
        read_on(take, found)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert f"offset {len(found)} does not exist any more; the log now starts at offset {begin}" in str(raised.value)
    assert found == written.rows[: len(found)]
    assert bool(places.missed) == local_files


# Deleted topics.


@pytest.mark.parametrize("local_files", [True, False], ids=["files", "sent"])
@pytest.mark.parametrize("is_made_again", [False, True], ids=["gone", "made-again"])
@pytest.mark.parametrize("form", SOME_FORMS)
def test_reading_ends_when_the_topic_is_deleted_or_recreated(
    broker: EmbeddedBroker,
    client: millstream.Client,
    places: FilePositions,
    topic: str,
    form: Form,
    is_made_again: bool,
    local_files: bool,
) -> None:
    client.create_topic(topic, settings=SETTINGS)
    old = Written(client, topic)
    end = old.put()
    with form(broker.bootstrap, topic, start="beginning", **ahead(local_files)) as take:
        found = take()
        if local_files:
            places.wait_announced(end - ONE_BATCH)
        client.delete_topic(topic)
        if is_made_again:
            client.create_topic(topic, settings=SETTINGS)
            Written(client, topic, "again").put()
        with pytest.raises(MillstreamError) as raised:
            read_on(take, found)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == old.rows[: len(found)]
    assert len(found) < COUNT / 2
    assert bool(places.announced) == local_files


@pytest.mark.parametrize("local_files", [True, False], ids=["files", "sent"])
@pytest.mark.parametrize("form", SOME_FORMS)
def test_a_group_reads_a_recreated_topic_and_no_more_of_the_old_one(
    broker: EmbeddedBroker, client: millstream.Client, places: FilePositions, topic: str, form: Form, local_files: bool
) -> None:
    client.create_topic(topic, settings=SETTINGS)
    old = Written(client, topic)
    end = old.put()
    with form(broker.bootstrap, topic, group=topic, start="beginning", **ahead(local_files)) as take:
        found = take()
        if local_files:
            places.wait_announced(end - ONE_BATCH)
        client.delete_topic(topic)
        client.create_topic(topic, settings=SETTINGS)
        new = Written(client, topic, "again")
        new.put()
        while found[-1] != new.rows[-1]:
            found += take()
    of_old = sum(row.value is not None and row.value.startswith(b"first") for row in found)
    assert 0 < of_old < COUNT / 2
    assert found == old.rows[:of_old] + new.rows
    assert bool(places.announced) == local_files


# A killed broker.


def knows_what_is_in_memory(path: Path) -> bool:
    """Return True if the kernel reports cached pages; without that, a broker process sends no file positions."""
    path.write_bytes(bytes(1000))
    with path.open("rb") as file:
        return is_cached(LocalPart(SimpleNamespace(fd=file.fileno()), position=0, size=1000))


@pytest.mark.parametrize("form", FORMS)
def test_files_of_a_killed_broker_are_read_and_no_message_is_lost(
    tmp_path: Path, places: FilePositions, form: Form
) -> None:
    with (
        RealBroker(tmp_path / "data", extra_args=("--segment-bytes", str(SEGMENT_BYTES))) as broker,
        millstream.connect(broker.bootstrap) as client,
    ):
        client.create_topic("orders")
        written = Written(client, "orders")
        end = written.put()
        with form(broker.bootstrap, "orders", start="beginning") as take, client.producer() as producer:
            found = take()
            has_positions = knows_what_is_in_memory(tmp_path / "file")
            if has_positions:
                places.wait_announced(end - ONE_BATCH)
            values = [b"%d" % number for number in range(1000)]
            receipts = [producer.put("orders", value, partition=0) for value in values]
            receipts[0].result()
            broker.kill()
            while has_positions and len(found) < end / 2:
                found += take()
            broker.start()
            offsets = [receipt.result().offset for receipt in receipts]
            found += read_to(take, end + len(values))
    assert found[:end] == written.rows
    assert [(row.offset, row.value) for row in found[end:]] == list(zip(offsets, values, strict=True))
    assert offsets == list(range(end, end + len(values)))
    assert bool(places.announced) == has_positions


# Full files.


@pytest.mark.parametrize("form", FORMS)
def test_a_reader_continues_from_a_full_file_into_the_next(
    broker: EmbeddedBroker, client: millstream.Client, places: FilePositions, topic: str, form: Form
) -> None:
    client.create_topic(topic, settings=SETTINGS)
    written = Written(client, topic)
    end = written.put(ONE_BATCH)
    found: list[Row] = []
    with form(broker.bootstrap, topic, start="beginning") as take:
        for number in range(20):
            if number % 7 == 0:  # Otherwise the announced file grows, or another one follows, before it is read.
                found += read_to(take, end)
            end = written.put(ONE_BATCH)
            places.wait_announced(end)
        found += read_to(take, end)
    assert found == written.rows
    assert len({place.inode for place in places.read}) >= 4
    assert places.missed == []
