"""Tests the driver's part of a stream source, called as Spark calls it, with a real broker and without Spark.

Truncated logs are detected by their leader epochs, even after new messages were written. No wait is a busy loop.
"""

import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StringType, StructType

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.sync.client import Client, connect
from millstream.sdk.sync.groups import Groups
from millstream.spark.archive.source import ArchivingReader
from millstream.spark.archive.topic_archive import TopicArchive
from millstream.spark.options import parse_options, source_options
from millstream.spark.reading import stream_reader
from millstream.spark.reading.stream_reader import StreamReader
from millstream.spark.reading.topic_survey import view_of
from millstream.testing import EmbeddedBroker

Position = dict[str, Any]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with connect(broker.bootstrap) as connected:
        connected.create_topic("orders")
        yield connected


def write(client: Client, count: int, topic: str = "orders") -> None:
    with client.producer() as producer:
        for number in range(count):
            producer.put(topic, b"%d" % number)


def expire(client: Client, before: int, topic: str, partition: int = 0) -> None:
    client.admin.delete_records({TopicPartition(topic, partition): before})


def reader_of(broker: EmbeddedBroker, **options: str) -> StreamReader:
    what = {} if "topicPattern" in options else {"topic": "orders"}
    said = {"bootstrap": broker.bootstrap, "startingOffsets": "earliest", **what, **options}
    return StreamReader(source_options(parse_options(said), streaming=True), StructType().add("value", BinaryType()))


def spans(reader: StreamReader, before: Position, after: Position) -> list[tuple[int, int]]:
    return [(each.start, each.end) for task in reader.partitions(before, after) for each in task.value]


def restored(broker: EmbeddedBroker, client: Client, reader: StreamReader, others: int) -> Position:
    """Returns a position after 10 messages, of which the broker lost the last 5; it then got `others` new ones."""
    write(client, 5)
    broker.stop()
    shutil.copytree(broker.data_dir, broker.data_dir.with_name("copy"))
    broker.start()
    write(client, 5)
    position = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert position["orders"]["offsets"] == {"0": 10}
    broker.kill()
    shutil.rmtree(broker.data_dir)
    shutil.copytree(broker.data_dir.with_name("copy"), broker.data_dir)
    for _ in range(2):
        broker.start()
        broker.stop()
    broker.start()
    write(client, others)
    return position


@pytest.mark.parametrize("others", [0, 3, 20])
def test_a_truncated_log_fails_regardless_of_its_new_end(broker: EmbeddedBroker, client: Client, others: int) -> None:
    reader = reader_of(broker)
    position = restored(broker, client, reader, others)
    for each in (reader, reader_of(broker)):
        with pytest.raises(
            MillstreamError, match="orders-0: the log was truncated: offsets 5 to 9 were read"
        ) as caught:
            each.latestOffset(position, ReadAllAvailable())
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("policy", "read"), [("earliest", [(5, 8)]), ("skip", [])])
def test_reading_resumes_at_the_truncation_or_log_end_when_loss_is_allowed(
    broker: EmbeddedBroker, client: Client, policy: str, read: list[tuple[int, int]]
) -> None:
    reader = reader_of(broker, dataLoss=policy)
    before = restored(broker, client, reader, 3)
    after = reader.latestOffset(before, ReadAllAvailable())
    assert after["orders"]["offsets"] == {"0": 8}
    assert spans(reader, before, after) == read
    write(client, 4)
    later = reader.latestOffset(after, ReadAllAvailable())
    assert spans(reader, after, later) == [(8, 12)]
    assert "resumed" not in later["orders"]


def test_an_archive_refuses_a_truncated_log_under_every_policy(
    broker: EmbeddedBroker, client: Client, tmp_path: Path
) -> None:
    reader = archiving(broker, client, tmp_path, dataLoss="earliest")
    before = restored(broker, client, reader, 3)
    after = reader.latestOffset(before, ReadAllAvailable())
    with pytest.raises(
        MillstreamError, match="orders-0: the log was truncated to offset 5, but later offsets are archived"
    ):
        reader.partitions(before, after)


def test_a_broker_restart_without_data_loss_changes_no_position(broker: EmbeddedBroker, client: Client) -> None:
    reader = reader_of(broker)
    write(client, 5)
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    broker.kill()
    broker.start()
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    write(client, 5)
    assert spans(reader, before, reader.latestOffset(before, ReadAllAvailable())) == [(5, 10)]


def test_a_checkpoint_without_epochs_is_continued(broker: EmbeddedBroker, client: Client) -> None:
    reader = reader_of(broker)
    write(client, 5)
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    del before["orders"]["epochs"]
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    write(client, 1)
    after = reader.latestOffset(before, ReadAllAvailable())
    assert spans(reader, before, after) == [(5, 6)]
    assert after["orders"]["epochs"].keys() == {"0"}


def test_latest_offset_waits_only_for_partitions_before_their_ending_offset(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[TopicPartition, int]] = []
    read_any = Client.read_any

    def noted(self: Client, places: dict[TopicPartition, int], **limits: Any) -> Any:
        asked.append(dict(places))
        return read_any(self, places, **limits)

    monkeypatch.setattr(Client, "read_any", noted)
    client.admin.create_partitions("orders", 2)
    with client.producer() as producer:
        for number in range(5):
            producer.put("orders", b"%d" % number, partition=0)
    reader = reader_of(broker, endingOffsets='{"orders": {"0": 2, "1": 5}}')
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert before["orders"]["offsets"] == {"0": 2, "1": 0}
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    assert asked == [{TopicPartition("orders", 1): 0}]


def test_latest_offset_sleeps_when_there_is_no_partition_to_wait_for(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(sleep=slept.append))
    reader = reader_of(broker, dataLoss="skip")
    write(client, 5)
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    client.delete_topic("orders")
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    nothing = reader_of(broker, topicPattern="none")
    assert nothing.latestOffset(nothing.initialOffset(), ReadAllAvailable()) == nothing.initialOffset()
    assert slept == [stream_reader.WAIT_S] * 2


def test_latest_offset_sleeps_when_the_stream_has_reached_its_end(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(sleep=slept.append))
    write(client, 5)
    reader = reader_of(broker, endingOffsets='{"orders": {"0": 2}}')
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    assert slept == [stream_reader.WAIT_S]


def test_a_stream_with_a_future_ending_time_reads_until_a_message_reaches_it(
    broker: EmbeddedBroker, client: Client
) -> None:
    soon_ms = int(time.time() * 1000) + 3_600_000
    client.admin.create_partitions("orders", 2)
    reader = reader_of(broker, endingTimestamp=str(soon_ms))
    reached = reader.initialOffset()
    with client.producer() as producer:
        for partition, times_ms, offsets in (
            (0, [0, 0], {"0": 2, "1": 0}),
            (0, [0, soon_ms, 0], {"0": 3, "1": 0}),
            (1, [0, 0], {"0": 3, "1": 2}),
            (1, [0, soon_ms + 1, 0], {"0": 3, "1": 3}),
        ):
            for time_ms in times_ms:
                producer.put("orders", b"", partition=partition, timestamp=time_ms / 1000)
            producer.flush()
            reached = reader.latestOffset(reached, ReadAllAvailable())
            assert reached["orders"]["offsets"] == offsets
    client.admin.create_partitions("orders", 3)
    with client.producer() as producer:
        producer.put("orders", b"", partition=2)
    assert reader.latestOffset(reached, ReadAllAvailable())["orders"]["offsets"] == {"0": 3, "1": 3, "2": 1}


def test_available_now_ends_a_stream_despite_a_future_ending_time(broker: EmbeddedBroker, client: Client) -> None:
    write(client, 3)
    reader = reader_of(broker, endingTimestamp=str(int(time.time() * 1000) + 3_600_000))
    reader.prepareForTriggerAvailableNow()
    write(client, 2)
    reached = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reached["orders"]["offsets"] == {"0": 3}
    assert reader.latestOffset(reached, ReadAllAvailable()) == reached


def test_a_repeated_first_batch_rereads_a_topic_created_after_the_start(broker: EmbeddedBroker, client: Client) -> None:
    pattern = {"topicPattern": "orders|later", "startingOffsets": "latest"}
    reader = reader_of(broker, **pattern)
    first = reader.initialOffset()
    client.create_topic("later")
    write(client, 10, "later")
    end = reader.latestOffset(first, ReadAllAvailable())
    again = reader_of(broker, **pattern)
    assert spans(again, again.initialOffset(), end) == spans(reader, first, end) == [(0, 10)]


@pytest.mark.parametrize("policy", ["fail", "earliest", "skip"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first batch", "later batch"])
def test_a_new_topic_is_read_from_its_first_message_and_checked_for_loss_later(
    broker: EmbeddedBroker, client: Client, policy: str, is_first: bool
) -> None:
    options = {"topicPattern": "orders|later", "startingOffsets": "latest", "dataLoss": policy}
    reader = reader_of(broker, **options)
    before = reader.initialOffset()
    if not is_first:
        write(client, 2)
        before = reader.latestOffset(before, ReadAllAvailable())
    client.create_topic("later")
    write(client, 10, "later")
    expire(client, 4, "later")
    after = reader.latestOffset(before, ReadAllAvailable())
    again = reader_of(broker, **options)
    assert spans(again, again.initialOffset() if is_first else before, after) == [(4, 10)]
    assert spans(reader, before, after) == [(4, 10)]
    write(client, 5, "later")
    last = reader.latestOffset(after, ReadAllAvailable())
    assert spans(reader, after, last) == [(10, 15)]
    assert "resumed" not in last["later"]
    expire(client, 12, "later")
    if policy == "fail":
        with pytest.raises(MillstreamError, match="later-0: offsets 10 to 11 no longer exist"):
            reader.partitions(after, last)


@pytest.mark.parametrize("limit", [{}, {"maxRowsPerTrigger": "3"}])
def test_a_new_partition_is_read_from_its_first_available_message(
    broker: EmbeddedBroker, client: Client, limit: dict[str, str]
) -> None:
    reader = reader_of(broker, **limit)
    before = with_new_partition(client, reader)
    position = before
    read: list[tuple[int, int]] = []
    while not read or read[-1][1] < 10:
        after = reader.latestOffset(position, reader.getDefaultReadLimit())
        read += spans(reader, position, after)
        position = after
    assert (read[0][0], read[-1][1]) == (4, 10)
    assert all(one[1] == other[0] for one, other in pairwise(read))


def with_new_partition(client: Client, reader: StreamReader) -> Position:
    """Adds a partition with 10 messages, of which 4 have expired; returns the position before that."""
    write(client, 5)
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    client.admin.create_partitions("orders", 2)
    with client.producer() as producer:
        for number in range(10):
            producer.put("orders", b"%d" % number, partition=1)
    expire(client, 4, "orders", 1)
    return before


def test_an_archive_begins_a_new_partition_at_its_first_available_message(
    broker: EmbeddedBroker, client: Client, tmp_path: Path
) -> None:
    reader = archiving(broker, client, tmp_path)
    before = with_new_partition(client, reader)
    assert spans(reader, before, reader.latestOffset(before, ReadAllAvailable())) == [(4, 10)]


def archiving(broker: EmbeddedBroker, client: Client, tmp_path: Path, **options: str) -> ArchivingReader:
    TopicArchive(str(tmp_path / "archive"), "orders").begin(view_of(client, "orders").topic_id)
    said = {"bootstrap": broker.bootstrap, "topic": "orders", "archive": str(tmp_path / "archive"), **options}
    return ArchivingReader(source_options(parse_options(said), streaming=True), StructType().add("piece", StringType()))


@pytest.mark.parametrize("starting", ["earliest", '{"orders": {"0": 0}, "others": {"0": 0}}'])
@pytest.mark.parametrize("is_now", [True, False])
def test_a_repeated_first_batch_leaves_out_a_deleted_topic(
    broker: EmbeddedBroker, client: Client, starting: str, is_now: bool
) -> None:
    client.create_topic("others")
    write(client, 5)
    write(client, 3, "others")
    options = {"topic": "orders,others", "startingOffsets": starting}
    reader = reader_of(broker, **options)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    client.delete_topic("orders")
    for policy in ("skip", "earliest", "fail"):
        again = reader_of(broker, **options, dataLoss=policy)
        if is_now:
            again.prepareForTriggerAvailableNow()
        start = again.initialOffset()
        if policy == "fail":
            with pytest.raises(
                MillstreamError, match=r"topic 'orders' was deleted .*dataLoss=skip to continue without it"
            ):
                again.partitions(start, end)
        else:
            assert spans(again, start, end) == [(0, 3)]
            assert again.latestOffset(end, ReadAllAvailable()) == end


@pytest.mark.parametrize("policy", ["fail", "earliest", "skip"])
def test_a_topic_that_never_existed_fails_under_every_policy(broker: EmbeddedBroker, policy: str) -> None:
    reader = reader_of(broker, topic="never", dataLoss=policy, startingOffsets='{"never": {"0": 3}}')
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    with pytest.raises(MillstreamError, match="topic 'never'") as caught:
        reader.latestOffset(start, ReadAllAvailable())
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("policy", ["earliest", "skip"])
@pytest.mark.parametrize("is_anew", [True, False], ids=["recreated", "deleted"])
def test_a_repeated_batch_leaves_out_a_deleted_or_recreated_topic(
    broker: EmbeddedBroker, client: Client, policy: str, is_anew: bool
) -> None:
    client.create_topic("others")
    write(client, 5)
    write(client, 3, "others")
    reader = reader_of(broker, topic="orders,others", dataLoss=policy)
    first = reader.initialOffset()
    end = reader.latestOffset(first, ReadAllAvailable())
    client.delete_topic("orders")
    if is_anew:
        client.create_topic("orders")
        write(client, 7)
    assert spans(reader_of(broker, topic="orders,others", dataLoss=policy), first, end) == [(0, 3)]


@pytest.mark.parametrize("is_anew", [True, False], ids=["recreated", "deleted"])
def test_a_repeated_batch_of_a_deleted_topic_fails_with_advice(
    broker: EmbeddedBroker, client: Client, is_anew: bool
) -> None:
    write(client, 5)
    reader = reader_of(broker)
    first = reader.initialOffset()
    end = reader.latestOffset(first, ReadAllAvailable())
    client.delete_topic("orders")
    if is_anew:
        client.create_topic("orders")
    with pytest.raises(MillstreamError, match=r"topic 'orders' was deleted .*dataLoss=skip"):
        reader.partitions(first, end)


@pytest.mark.parametrize("fewer", [{"topic": "orders"}, {"topicPattern": "order."}], ids=["names", "pattern"])
def test_a_topic_no_longer_selected_is_not_reported_as_deleted(
    broker: EmbeddedBroker, client: Client, fewer: dict[str, str]
) -> None:
    client.create_topic("others")
    reader = reader_of(broker, topic="orders,others")
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with pytest.raises(MillstreamError, match=r"'others' is in the checkpoint, but the options .* dataLoss=skip"):
        reader_of(broker, **fewer).latestOffset(before, ReadAllAvailable())


def test_offsets_are_not_committed_to_a_group_with_members(broker: EmbeddedBroker, client: Client) -> None:
    write(client, 5)
    reader = reader_of(broker, group="readers")
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with client.consumer("orders", group="readers", start="beginning") as member:
        assert member.poll(timeout=30)
        with pytest.raises(
            MillstreamError, match=r"group 'readers' has members, .*set the option group to another name"
        ):
            reader.commit(before)


def test_offsets_of_existing_topics_are_committed_when_others_were_deleted(
    broker: EmbeddedBroker, client: Client
) -> None:
    client.create_topic("others")
    write(client, 5)
    write(client, 3, "others")
    reader = reader_of(broker, topic="orders,others", dataLoss="skip", group="readers")
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    client.delete_topic("orders")
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    reader.commit(before)
    assert committed(client) == {TopicPartition("others", 0): 3}


def test_a_failed_offset_commit_is_logged_and_retried_with_the_next_batch(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(client, 5)
    reader = reader_of(broker, group="readers")
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    def refuse(*_: object) -> None:
        raise MillstreamError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "none")

    with monkeypatch.context() as patched:
        patched.setattr(Groups, "commit", refuse)
        reader.commit(before)
    assert "offset commit failed" in caplog.text
    assert committed(client) == {}
    reader.commit(before)
    assert committed(client) == {TopicPartition("orders", 0): 5}


def committed(client: Client) -> dict[TopicPartition, int]:
    return {where: each.offset for where, each in client.groups.offsets("readers").items()}
