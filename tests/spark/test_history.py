"""Tests how a task reads archive and log as one while both change, with a real broker and without Spark."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.sync.client import Client, connect
from millstream.spark.archive.archive_and_log import read_history
from millstream.spark.archive.archive_pieces import ArchivePiece
from millstream.spark.archive.source import store
from millstream.spark.archive.topic_archive import TopicArchive, kept
from millstream.spark.options import SourceOptions, parse_options, source_options
from millstream.spark.reading.planning import Range
from millstream.spark.reading.topic_survey import view_of
from millstream.testing import EmbeddedBroker

WHERE = TopicPartition("orders", 0)
MESSAGES = 12


class Site:
    """A topic with messages, and its archive."""

    def __init__(self, broker: EmbeddedBroker, client: Client, path: Path) -> None:
        self.client = client
        self._said = {"bootstrap": broker.bootstrap, "topic": WHERE.topic, "archive": str(path)}
        client.create_topic(WHERE.topic)
        with client.producer() as producer:
            for number in range(MESSAGES):
                producer.put(WHERE.topic, b"%d" % number)
        self._topic_id = view_of(client, WHERE.topic).topic_id
        self.shelf = TopicArchive(str(path), WHERE.topic)
        self.shelf.begin(self._topic_id)

    def options(self, data_loss: str = "fail") -> SourceOptions:
        return source_options(parse_options({**self._said, "dataLoss": data_loss}), streaming=False)

    def range(self, start: int, end: int) -> Range:
        return Range(WHERE.topic, self._topic_id, WHERE.partition, start, end, 100)

    def archive(self, start: int, end: int) -> None:
        with kept(self.shelf) as keeper:
            keeper.commit(store([self.range(start, end)], self.options()))

    def expire(self, before: int) -> None:
        self.client.admin.delete_records({WHERE: before})

    def read(self, start: int, end: int, data_loss: str = "fail") -> Iterator[pa.RecordBatch]:
        wanted = [self.range(start, end)]
        return read_history(self.client, WHERE.topic, wanted, self.options(data_loss), ["offset", "value"])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with EmbeddedBroker(tmp_path / "data") as broker, connect(broker.bootstrap) as client:
        yield Site(broker, client, tmp_path / "archive")


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_range_of_many_archive_pieces_is_found_with_one_index_lookup(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 10, 2):
        site.archive(start, start + 2)
    looks: list[list[ArchivePiece]] = []
    look = TopicArchive.pieces

    def counted(shelf: TopicArchive, partition: int, *, start: int, end: int) -> list[ArchivePiece]:
        looks.append(look(shelf, partition, start=start, end=end))
        return looks[-1]

    monkeypatch.setattr(TopicArchive, "pieces", counted)
    assert offsets(site.read(1, MESSAGES)) == list(range(1, MESSAGES))
    assert [len(found) for found in looks] == [5]


def test_messages_archived_and_expired_during_a_read_come_from_the_archive(site: Site) -> None:
    site.archive(0, 5)
    batches = site.read(0, MESSAGES)
    first = next(batches)
    site.archive(5, 10)
    site.expire(10)
    assert [*first.column("offset").to_pylist(), *offsets(batches)] == list(range(MESSAGES))


def test_unarchived_messages_that_expire_during_a_read_follow_the_loss_policy(site: Site) -> None:
    site.archive(0, 5)
    failing, going_on = site.read(0, MESSAGES), site.read(0, MESSAGES, "earliest")
    assert [offsets(iter([next(each)])) for each in (failing, going_on)] == [list(range(5))] * 2
    site.expire(8)
    with pytest.raises(MillstreamError, match="orders-0: offsets 5 to 7 are neither in the archive nor in the log"):
        list(failing)
    assert offsets(going_on) == list(range(8, MESSAGES))
