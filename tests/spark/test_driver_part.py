"""The driver's part of a stream's source, called as Spark calls it, with a broker of its own and no Spark.

A log that has lost its end is noticed by the leader epochs, also where others have been written since; and whatever is
waited for, nobody is asked without a pause.
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
    """The position behind 10 messages, of which the broker has lost the last 5, and then got others."""
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
def test_a_log_that_has_lost_what_was_read_is_a_failure_however_far_it_is(
    broker: EmbeddedBroker, client: Client, others: int
) -> None:
    reader = reader_of(broker)
    position = restored(broker, client, reader, others)
    for each in (reader, reader_of(broker)):
        with pytest.raises(
            MillstreamError, match="orders-0: offsets 5 to 9 were read, but the log has lost them"
        ) as caught:
            each.latestOffset(position, ReadAllAvailable())
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("policy", "read"), [("earliest", [(5, 8)]), ("skip", [])])
def test_where_reading_is_to_go_on_it_does_from_where_the_log_was_cut_or_from_its_end(
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


def test_no_policy_lets_an_archive_go_on_with_a_log_that_has_lost_its_end(
    broker: EmbeddedBroker, client: Client, tmp_path: Path
) -> None:
    reader = archiving(broker, client, tmp_path, dataLoss="earliest")
    before = restored(broker, client, reader, 3)
    after = reader.latestOffset(before, ReadAllAvailable())
    with pytest.raises(
        MillstreamError, match="orders-0: the log has lost what it had from offset 5 on, which is archived"
    ):
        reader.partitions(before, after)


def test_a_broker_that_comes_back_with_everything_changes_no_position(broker: EmbeddedBroker, client: Client) -> None:
    reader = reader_of(broker)
    write(client, 5)
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    broker.kill()
    broker.start()
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    write(client, 5)
    assert spans(reader, before, reader.latestOffset(before, ReadAllAvailable())) == [(5, 10)]


def test_a_checkpoint_that_knows_no_epochs_is_read_on(broker: EmbeddedBroker, client: Client) -> None:
    reader = reader_of(broker)
    write(client, 5)
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    del before["orders"]["epochs"]
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    write(client, 1)
    after = reader.latestOffset(before, ReadAllAvailable())
    assert spans(reader, before, after) == [(5, 6)]
    assert after["orders"]["epochs"].keys() == {"0"}


def test_only_what_is_wanted_is_waited_for(
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


def test_with_nothing_to_wait_for_it_is_not_asked_again_and_again(
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


def test_a_stream_that_has_reached_its_end_is_not_asked_again_and_again(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(sleep=slept.append))
    write(client, 5)
    reader = reader_of(broker, endingOffsets='{"orders": {"0": 2}}')
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    assert slept == [stream_reader.WAIT_S]


def test_a_stream_that_ends_at_a_time_to_come_reads_on_until_a_message_has_reached_it(
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


def test_a_time_to_come_ends_a_stream_that_reads_what_is_there_now_at_once(
    broker: EmbeddedBroker, client: Client
) -> None:
    write(client, 3)
    reader = reader_of(broker, endingTimestamp=str(int(time.time() * 1000) + 3_600_000))
    reader.prepareForTriggerAvailableNow()
    write(client, 2)
    reached = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reached["orders"]["offsets"] == {"0": 3}
    assert reader.latestOffset(reached, ReadAllAvailable()) == reached


def test_a_first_batch_of_a_topic_that_came_after_the_start_is_read_again_by_the_next_start(
    broker: EmbeddedBroker, client: Client
) -> None:
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
def test_a_topic_that_comes_later_is_read_from_what_is_left_of_it_and_missed_from_then_on(
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
        with pytest.raises(MillstreamError, match="later-0: offsets 10 to 11 were to be read, but are gone"):
            reader.partitions(after, last)


@pytest.mark.parametrize("limit", [{}, {"maxRowsPerTrigger": "3"}])
def test_a_partition_that_comes_later_is_read_from_what_is_left_of_it(
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
    """The position before the topic got a second partition, whose first 4 messages of 10 are gone."""
    write(client, 5)
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    client.admin.create_partitions("orders", 2)
    with client.producer() as producer:
        for number in range(10):
            producer.put("orders", b"%d" % number, partition=1)
    expire(client, 4, "orders", 1)
    return before


def test_an_archive_begins_with_a_partition_that_comes_later_at_what_is_left_of_it(
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
def test_a_first_batch_of_a_topic_that_is_gone_since_is_begun_again_without_it(
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
            with pytest.raises(MillstreamError, match=r"topic 'orders' was deleted .*dataLoss=skip goes on without it"):
                again.partitions(start, end)
        else:
            assert spans(again, start, end) == [(0, 3)]
            assert again.latestOffset(end, ReadAllAvailable()) == end


@pytest.mark.parametrize("policy", ["fail", "earliest", "skip"])
def test_a_topic_that_never_was_there_is_a_failure_whatever_is_lost(broker: EmbeddedBroker, policy: str) -> None:
    reader = reader_of(broker, topic="never", dataLoss=policy, startingOffsets='{"never": {"0": 3}}')
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    with pytest.raises(MillstreamError, match="topic 'never'") as caught:
        reader.latestOffset(start, ReadAllAvailable())
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("policy", ["earliest", "skip"])
@pytest.mark.parametrize("is_anew", [True, False], ids=["made anew", "deleted"])
def test_a_batch_of_a_topic_that_is_gone_since_is_repeated_without_it(
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


@pytest.mark.parametrize("is_anew", [True, False], ids=["made anew", "deleted"])
def test_a_batch_of_a_topic_that_is_gone_since_is_a_failure_that_says_what_to_do(
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
def test_a_topic_that_is_not_asked_for_any_more_is_not_called_deleted(
    broker: EmbeddedBroker, client: Client, fewer: dict[str, str]
) -> None:
    client.create_topic("others")
    reader = reader_of(broker, topic="orders,others")
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with pytest.raises(MillstreamError, match=r"'others' is in the checkpoint, but the options .* dataLoss=skip"):
        reader_of(broker, **fewer).latestOffset(before, ReadAllAvailable())


def test_a_group_that_has_members_is_not_told_and_the_failure_says_why(broker: EmbeddedBroker, client: Client) -> None:
    write(client, 5)
    reader = reader_of(broker, group="readers")
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with client.consumer("orders", group="readers", start="beginning") as member:
        assert member.poll(timeout=30)
        with pytest.raises(MillstreamError, match=r"group 'readers' has members, .*give the option group another name"):
            reader.commit(before)


def test_a_group_is_told_of_topics_that_are_there_whatever_has_become_of_others(
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


def test_a_group_that_cannot_be_told_now_is_told_later(
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
    assert "group 'readers' is not told" in caplog.text
    assert committed(client) == {}
    reader.commit(before)
    assert committed(client) == {TopicPartition("orders", 0): 5}


def committed(client: Client) -> dict[TopicPartition, int]:
    return {where: each.offset for where, each in client.groups.offsets("readers").items()}
