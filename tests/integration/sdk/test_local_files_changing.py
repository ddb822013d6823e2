"""The broker changes its files under consumers that were told of them: they get what they would have been sent."""

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
    Form,
    Places,
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
"""Messages that make one, large enough for its place to be told."""
KEYS = 400
COUNT = 4000
"""Messages for some eight segments."""
SOME_FORMS = (polled, columns, coroutines)
"""Who takes one by one is brought what it takes as who polls is."""
SENT_AHEAD = 64 * 1024
"""As little as a consumer can have sent ahead."""

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
    """Whatever the kernel can tell of it: only of what is in memory anybody is told the place."""
    monkeypatch.setattr(LocalPart, "is_cached", lambda part: True)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(monkeypatch)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of the test's own."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-200:]


class Written:
    """What was written into the one partition of a topic, by offset."""

    def __init__(self, client: millstream.Client, topic: str, what: str = "first") -> None:
        self.rows: list[Row] = []
        self._client = client
        self._topic = topic
        self._what = what

    def put(self, count: int = COUNT) -> int:
        """So many messages more, of few keys that take turns; where the partition ends now."""
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
    """One round of compaction, of all that is there."""
    partitions = served(broker)

    async def work() -> None:
        for partition in partitions.all():
            await partition.save_ids()  # Before that, what has ids is not cleaned.
        await partitions.clean()

    broker._running().call(work)


def read_to(take: Take, end: int) -> list[Row]:
    """Up to the message before `end`."""
    found: list[Row] = []
    while not found or found[-1].offset < end - 1:
        some = take()
        assert some, "there is more"
        found += some
    return found


def read_on(take: Take, found: list[Row]) -> None:
    """As long as there is more, which is added to what was found."""
    while some := take():
        found += some


def assert_of_one_log(found: list[Row], written: Written) -> None:
    """Nothing doubled, nothing out of order, nothing that nobody wrote."""
    assert all(one.offset < other.offset for one, other in pairwise(found))
    assert found == [written.rows[row.offset] for row in found]


def ahead(local_files: bool) -> dict[str, Any]:
    """Options of consumers that were told of all files, or were sent as little as can be."""
    return {"local_files": True} if local_files else {"local_files": False, "prefetch_bytes": SENT_AHEAD}


# Compaction.


@pytest.mark.parametrize("form", FORMS)
def test_files_that_compaction_exchanges_before_they_are_read_are_read_anew(
    broker: EmbeddedBroker, client: millstream.Client, places: Places, topic: str, form: Form
) -> None:
    client.create_topic(topic, settings=COMPACTED)
    written = Written(client, topic)
    end = written.put()
    found: list[Row] = []
    with form(broker.bootstrap, topic, start="beginning") as take:
        for passes in (1, 2, 3):  # With the second, a file may have the name and the number of the one that was meant.
            places.wait_told(end - ONE_BATCH)
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
def test_a_file_is_read_though_it_was_told_of_before_it_had_its_name(
    broker: EmbeddedBroker,
    client: millstream.Client,
    places: Places,
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
            places.wait_told(end - ONE_BATCH)
            assert [place for place in places.told if place.path.endswith(segment_exchange.CLEANED_SUFFIX)]
            go_on.set()
            cleaning.join()
            found = read_to(take, end)
    finally:
        go_on.set()
        cleaning.join()
    assert_of_one_log(found, written)
    assert {row.key: row.value for row in found} == written.last_values()
    assert places.missed


# Messages that go.


def by_deletion(client: millstream.Client, topic: str) -> None:
    """The partition begins in the middle of a file then, and of a batch."""
    client.admin.delete_records({TopicPartition(topic, 0): COUNT - 777})


def by_retention(client: millstream.Client, topic: str) -> None:
    client.admin.alter_settings("topic", topic, {"retention.bytes": str(2 * SEGMENT_BYTES)})


Removal = Callable[[millstream.Client, str], None]


@contextmanager
def cut(
    broker: EmbeddedBroker,
    client: millstream.Client,
    places: Places,
    topic: str,
    form: Form,
    remove: Removal,
    local_files: bool,
    **options: Any,
) -> Iterator[tuple[Take, list[Row], int, Written]]:
    """Somebody who has begun to read, and whose next messages are gone by now, with their files."""
    client.create_topic(topic, settings=SETTINGS)
    written = Written(client, topic)
    end = written.put()
    with form(broker.bootstrap, topic, start="beginning", stop=end, **ahead(local_files), **options) as take:
        found = take()
        if local_files:
            places.wait_told(end - ONE_BATCH)
        remove(client, topic)
        wait_until(lambda: is_cut(broker, topic))
        begin = served(broker).of(topic)[0].log.start_offset
        assert COUNT / 2 < begin < end - ONE_BATCH
        yield take, found, begin, written


def is_cut(broker: EmbeddedBroker, topic: str) -> bool:
    """Whether messages are gone, and all files that had nothing else."""
    broker.upkeep()
    log = served(broker).of(topic)[0].log
    bases = [int(path.stem) for path in Path(log.path).glob("*.log")]
    return log.start_offset > 0 and sum(base <= log.start_offset for base in bases) == 1


@pytest.mark.parametrize("local_files", [True, False], ids=["files", "sent"])
@pytest.mark.parametrize("remove", [by_deletion, by_retention])
@pytest.mark.parametrize("form", SOME_FORMS)
def test_who_was_told_of_files_that_are_gone_goes_on_where_the_log_begins(
    broker: EmbeddedBroker,
    client: millstream.Client,
    places: Places,
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
def test_who_wants_to_know_of_it_is_told_that_messages_are_gone(
    broker: EmbeddedBroker, client: millstream.Client, places: Places, topic: str, remove: Removal, local_files: bool
) -> None:
    case = cut(broker, client, places, topic, polled, remove, local_files, out_of_range="error")
    with case as (take, found, begin, written), pytest.raises(MillstreamError) as raised:
        read_on(take, found)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert f"offset {len(found)} is no longer there; the first message that is has offset {begin}" in str(raised.value)
    assert found == written.rows[: len(found)]
    assert bool(places.missed) == local_files


# Topics that go.


@pytest.mark.parametrize("local_files", [True, False], ids=["files", "sent"])
@pytest.mark.parametrize("is_made_again", [False, True], ids=["gone", "made-again"])
@pytest.mark.parametrize("form", SOME_FORMS)
def test_a_topic_that_is_deleted_ends_reading_also_where_another_has_its_name(
    broker: EmbeddedBroker,
    client: millstream.Client,
    places: Places,
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
            places.wait_told(end - ONE_BATCH)
        client.delete_topic(topic)
        if is_made_again:
            client.create_topic(topic, settings=SETTINGS)
            Written(client, topic, "again").put()
        with pytest.raises(MillstreamError) as raised:
            read_on(take, found)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == old.rows[: len(found)]
    assert len(found) < COUNT / 2
    assert bool(places.told) == local_files


@pytest.mark.parametrize("local_files", [True, False], ids=["files", "sent"])
@pytest.mark.parametrize("form", SOME_FORMS)
def test_a_group_reads_all_of_a_topic_that_is_made_again_and_no_more_of_the_old_one(
    broker: EmbeddedBroker, client: millstream.Client, places: Places, topic: str, form: Form, local_files: bool
) -> None:
    client.create_topic(topic, settings=SETTINGS)
    old = Written(client, topic)
    end = old.put()
    with form(broker.bootstrap, topic, group=topic, start="beginning", **ahead(local_files)) as take:
        found = take()
        if local_files:
            places.wait_told(end - ONE_BATCH)
        client.delete_topic(topic)
        client.create_topic(topic, settings=SETTINGS)
        new = Written(client, topic, "again")
        new.put()
        while found[-1] != new.rows[-1]:
            found += take()
    of_old = sum(row.value is not None and row.value.startswith(b"first") for row in found)
    assert 0 < of_old < COUNT / 2
    assert found == old.rows[:of_old] + new.rows
    assert bool(places.told) == local_files


# A broker that ends.


def knows_what_is_in_memory(path: Path) -> bool:
    """Whether the kernel can tell of it; a broker of its own process tells of no places otherwise."""
    path.write_bytes(bytes(1000))
    with path.open("rb") as file:
        return is_cached(LocalPart(SimpleNamespace(fd=file.fileno()), 0, 1000))


@pytest.mark.parametrize("form", FORMS)
def test_a_killed_broker_s_files_are_read_on_and_everything_acknowledged_comes_once_and_in_order(
    tmp_path: Path, places: Places, form: Form
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
            is_told = knows_what_is_in_memory(tmp_path / "file")
            if is_told:
                places.wait_told(end - ONE_BATCH)
            values = [b"%d" % number for number in range(1000)]
            receipts = [producer.put("orders", value, partition=0) for value in values]
            receipts[0].result()
            broker.kill()
            while is_told and len(found) < end / 2:
                found += take()
            broker.start()
            offsets = [receipt.result().offset for receipt in receipts]
            found += read_to(take, end + len(values))
    assert found[:end] == written.rows
    assert [(row.offset, row.value) for row in found[end:]] == list(zip(offsets, values, strict=True))
    assert offsets == list(range(end, end + len(values)))
    assert bool(places.told) == is_told


# Files that are full.


@pytest.mark.parametrize("form", FORMS)
def test_a_reader_follows_from_a_file_that_is_full_into_the_next(
    broker: EmbeddedBroker, client: millstream.Client, places: Places, topic: str, form: Form
) -> None:
    client.create_topic(topic, settings=SETTINGS)
    written = Written(client, topic)
    end = written.put(ONE_BATCH)
    found: list[Row] = []
    with form(broker.bootstrap, topic, start="beginning") as take:
        for number in range(20):
            if number % 7 == 0:  # Else, of what it was told the file grows, or another follows, before it is read.
                found += read_to(take, end)
            end = written.put(ONE_BATCH)
            places.wait_told(end)
        found += read_to(take, end)
    assert found == written.rows
    assert len({place.inode for place in places.read}) >= 4
    assert places.missed == []
