"""Tests reading an archive and its topic as one: no message is missing or duplicated where they meet."""

import json

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from millstream.model.names import TopicPartition
from millstream.spark.archive import archive
from spark.site import LONG_S, Site, batch_sizes, forget_last_commit


def archive_now(site: Site) -> str:
    """Updates the archive and returns its path."""
    path = str(site.files / "archive")
    archive(site.spark, site.topic, path, bootstrap=site.broker.bootstrap, once=True)
    return path


def expire(site: Site, before: int, partition: int = 0) -> None:
    """Deletes the messages of the log below `before`."""
    site.client.admin.delete_records({TopicPartition(site.topic, partition): before})


def seamed(site: Site) -> str:
    """Archives two partitions: one log begins before its archive ends, the other one where its archive ends."""
    site.client.create_topic(site.topic, partitions=2)
    site.write(range(10), partition=0)
    site.write(range(100, 110), partition=1)
    path = archive_now(site)
    site.write(range(10, 15), partition=0)
    site.write(range(110, 115), partition=1)
    expire(site, 7, 0)
    expire(site, 10, 1)
    return path


def test_a_table_has_all_messages_of_archive_and_log(site: Site) -> None:
    path = seamed(site)
    assert site.values(archive=path) == [*range(15), *range(100, 115)]
    ends = json.dumps({site.topic: {"0": 12, "1": 10}})
    starts = json.dumps({site.topic: {"0": 5, "1": 9}})
    assert site.values(archive=path, startingOffsets=starts, endingOffsets=ends) == [*range(5, 12), 109]
    rows = site.read("partition INT, offset BIGINT", archive=path, minPartitions=4)
    assert sorted(rows.collect()) == sorted((p, o) for p in range(2) for o in range(15))
    assert [row.offset for row in rows.where("partition = 1 AND offset < 3").collect()] == [0, 1, 2]
    assert site.read(archive=path).where("value = '3'").first() is not None
    typed = {"valueFormat": "json", "valueSchema": "a INT", "valueShape": "struct"}
    assert site.read(archive=path, badValues="null", **typed).where("value IS NULL").count() == 30
    with pytest.raises(PySparkException, match=f"{site.topic}-[01] at offset 0 cannot be decoded"):
        site.read(archive=path, **typed).collect()


def test_timestamps_are_looked_up_in_the_archive_too(site: Site) -> None:
    site.client.create_topic(site.topic)
    with site.client.producer() as producer:
        for number in range(10):
            producer.put(site.topic, b"%d" % number, timestamp=1_700_000_000.0 + number)
    path = archive_now(site)
    expire(site, 8)
    assert site.values(archive=path, startingTimestamp=1_700_000_003_000) == list(range(3, 10))
    assert site.values(archive=path, endingTimestamp=1_700_000_003_000) == list(range(3))
    late = site.read(archive=path).where("timestamp >= '2023-11-14T22:13:25Z'")
    assert sorted(int(row.value) for row in late.collect()) == [5, 6, 7, 8, 9]


def test_a_stream_reads_archive_and_log_across_restarts_while_the_archive_grows(site: Site) -> None:
    path = seamed(site)
    stream = site.stream(archive=path, maxRowsPerTrigger=8)
    query = stream.run()
    assert batch_sizes(query) == [8, 8, 8, 6]
    assert stream.values() == [*range(15), *range(100, 115)]
    site.write(range(15, 20), partition=0)
    archive_now(site)
    expire(site, 20, 0)
    site.write(range(20, 25), partition=0)
    stream.run()
    assert stream.values() == [*range(25), *range(100, 115)]


def test_a_repeated_batch_has_the_same_rows_in_order_after_expiry_from_the_log(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=2)
    for partition in range(2):
        site.write(range(5), partition=partition)
    path = archive_now(site)
    for partition in range(2):
        site.write(range(5, 10), partition=partition)
    options = site.stream(archive=path).options
    frame = site.spark.readStream.format("millstream").options(**options).schema("partition INT, offset BIGINT").load()
    checkpoint = site.files / "checkpoint"
    seen: list[list[tuple[int, int]]] = []

    def run() -> None:
        writer = frame.writeStream.foreachBatch(lambda batch, _: seen.append([tuple(row) for row in batch.collect()]))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(LONG_S)

    run()
    forget_last_commit(checkpoint)
    archive_now(site)
    expire(site, 10, 0)
    expire(site, 7, 1)
    run()
    assert seen == [[(partition, offset) for partition in range(2) for offset in range(10)]] * 2


def test_messages_in_neither_archive_nor_log_follow_the_data_loss_policy(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    path = archive_now(site)
    site.write(range(5, 12))
    expire(site, 8)
    told = f"{site.topic}-0: offsets 5 to 7 no longer exist"
    with pytest.raises(Exception, match=told):
        site.values(archive=path)
    assert site.values(archive=path, dataLoss="earliest") == [*range(5), *range(8, 12)]
    with pytest.raises(StreamingQueryException, match=told):
        site.stream(archive=path).start(now=True).awaitTermination(LONG_S)
    after = json.dumps({site.topic: {"0": 8}})
    assert site.values(archive=path, startingOffsets=after) == list(range(8, 12))


def test_a_missing_archive_is_an_error(site: Site) -> None:
    site.client.create_topic(site.topic)
    with pytest.raises(Exception, match=f"there is no archive of topic '{site.topic}'"):
        site.values(archive=site.files / "nowhere")
