"""Tests a topic's archive: every message once and unchanged, in plain Parquet files, while the topic changes."""

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.spark.archive import ArchiveProgress, ArchiveVerdict, archive, verification, verify
from millstream.spark.archive.topic_archive import TopicArchive, kept
from spark.site import Site, forget_last_commit, numbers, until


def place(site: Site) -> Path:
    return site.files / "archive"


def archived(
    site: Site, *, data_loss: str = "fail", on_progress: Callable[[ArchiveProgress], None] | None = None
) -> ArchiveProgress:
    """Updates the topic's archive."""
    return archive(
        site.spark,
        site.topic,
        str(place(site)),
        bootstrap=site.broker.bootstrap,
        once=True,
        data_loss=data_loss,
        on_progress=on_progress,
    )


def verified(
    site: Site, on_progress: Callable[[str, ArchiveProgress], None] = lambda topic, progress: None
) -> ArchiveVerdict:
    (verdict,) = verify(site.spark, str(place(site)), bootstrap=site.broker.bootstrap, on_progress=on_progress)
    return verdict


def values(site: Site) -> list[int]:
    return numbers(site.spark.read.parquet(str(place(site) / "data")))


def code_of(work: Callable[[], object]) -> tuple[ErrorCode, str]:
    with pytest.raises(MillstreamError) as caught:
        work()
    return caught.value.code, caught.value.detail


def test_an_archive_has_every_message_once_and_continues_with_new_partitions(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.client.create_topic(site.topic, partitions=2)
    site.write(range(30), partition=0)
    site.write(range(30, 40), partition=1)
    told: list[ArchiveProgress] = []
    assert archived(site, on_progress=told.append).rows == 40
    assert told[0] == ArchiveProgress(behind=40)
    assert told[-1].behind == 0
    assert archived(site) == ArchiveProgress()
    site.client.admin.create_partitions(site.topic, 3)
    site.write(range(40, 45), partition=1)
    site.write(range(45, 50), partition=2)
    again = archived(site)
    assert (again.rows, again.files, again.batches) == (10, 2, 1)
    frame = site.spark.read.parquet(str(place(site) / "data"))
    assert numbers(frame) == list(range(50))
    assert {row.topic for row in frame.select("topic").collect()} == {site.topic}
    monkeypatch.setattr(verification, "TASK_BYTES", 1)  # So that each piece is checked in a job of its own.
    steps: list[tuple[str, ArchiveProgress]] = []
    assert verified(site, lambda *step: steps.append(step)) == ArchiveVerdict(
        site.topic, pieces=4, rows=50, compared=50, lost=0, behind=0
    )
    assert steps[0] == (site.topic, ArchiveProgress(behind=50))
    assert [(told.batches, told.rows + told.behind) for _, told in steps] == [(number, 50) for number in range(4)]


def test_archived_messages_are_unchanged_and_stored_by_day(site: Site) -> None:
    site.client.create_topic(site.topic)
    with site.client.producer() as producer:
        producer.put(site.topic, None, key=b"", timestamp=0.0)
        producer.put(site.topic, b"", key=None, timestamp=86_400.0, headers=[("a", None), ("b", b"")])
        producer.put(site.topic, b"\xff", key=b"k", timestamp=1.5)
    archived(site)
    read = site.read(
        "offset BIGINT, key BINARY, value BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>, timestamp TIMESTAMP"
    )
    stored = site.spark.read.parquet(str(place(site) / "data"))
    assert sorted(stored.select(*read.columns).collect()) == sorted(read.collect())
    assert {row.date: row.n for row in stored.groupBy("date").count().withColumnRenamed("count", "n").collect()} == {
        date(1970, 1, 1): 2,
        date(1970, 1, 2): 1,
    }
    assert verified(site).compared == 3
    assert [row.offset for row in site.read("offset BIGINT", archive=place(site)).collect()] == [0, 1, 2]


def test_an_archive_survives_the_loss_of_its_checkpoint(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    archived(site)
    shutil.rmtree(place(site) / "_millstream" / site.topic / "checkpoint")
    site.write(range(5, 8))
    assert archived(site).rows == 3
    assert values(site) == list(range(8))


def test_committed_messages_are_not_archived_again_with_an_older_checkpoint(
    site: Site,
) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    archived(site)
    forget_last_commit(place(site) / "_millstream" / site.topic / "checkpoint")
    site.client.admin.delete_records({TopicPartition(site.topic, 0): 5})
    site.write(range(5, 7))
    assert archived(site).rows == 2
    assert values(site) == list(range(7))
    verdict = verified(site)
    assert (verdict.rows, verdict.compared, verdict.differences) == (7, 2, [])


def test_messages_expired_before_archiving_fail_or_are_recorded_as_lost(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    archived(site)
    site.write(range(5, 10))
    site.client.admin.delete_records({TopicPartition(site.topic, 0): 8})
    code, text = code_of(lambda: archived(site))
    assert code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert f"{site.topic}-0: offsets 5 to 7 expired before they were archived" in text
    told = archived(site, data_loss="earliest")
    assert (told.rows, told.lost) == (2, 3)
    assert values(site) == [*range(5), 8, 9]
    verdict = verified(site)
    assert (verdict.rows, verdict.lost, verdict.differences) == (7, 3, [])


def test_a_recreated_topic_needs_another_archive(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    archived(site)
    site.client.delete_topic(site.topic)
    assert verified(site).behind is None
    site.client.create_topic(site.topic)
    for work in (lambda: archived(site, data_loss="earliest"), lambda: site.values(archive=place(site))):
        with pytest.raises(Exception, match=f"topic '{site.topic}' was deleted and recreated: its id is"):
            work()
    verdict = verified(site)
    assert (verdict.rows, verdict.compared, verdict.behind, verdict.differences) == (5, 0, None, [])


def test_archive_errors_have_a_code_and_a_reason(site: Site) -> None:
    assert code_of(lambda: archived(site))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    site.client.create_topic(site.topic)
    place(site).write_bytes(b"a file")
    code, text = code_of(lambda: archived(site))
    assert code is ErrorCode.INVALID_SETTING
    assert f"cannot create an archive in {place(site)}: " in text
    assert code_of(lambda: archived(site, data_loss="skip"))[0] is ErrorCode.INVALID_SETTING
    place(site).unlink()
    assert code_of(lambda: verified(site))[0] is ErrorCode.RESOURCE_NOT_FOUND
    archived(site)
    with kept(TopicArchive(str(place(site)), site.topic)):
        assert code_of(lambda: archived(site))[0] is ErrorCode.DATA_DIRECTORY_IN_USE


def test_verify_accepts_archived_messages_that_compaction_removed_from_the_log(site: Site) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01"}
    site.client.create_topic(site.topic, settings=settings)
    with site.client.producer() as producer:
        for number in range(40):  # Each in a batch of its own, so that segments roll.
            producer.put(site.topic, b"%02d" % number * 1000, key=b"%d" % (number % 3)).result()
    archived(site)

    def is_compacted() -> bool:
        site.broker.clock.advance(30)
        return site.read("offset BIGINT").count() < 40

    until(is_compacted, "messages are compacted away")
    verdict = verified(site)
    assert (verdict.rows, verdict.differences) == (40, [])
    assert 0 < verdict.compared < 40
    with site.client.producer() as producer:
        producer.put(site.topic, b"new", key=b"4")
    assert archived(site).rows == 1
    shutil.rmtree(place(site))
    assert 0 < archived(site).rows < 40
    assert verified(site).differences == []


def test_verify_describes_each_changed_missing_damaged_or_unknown_archive_file(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=5)
    for partition in range(5):
        site.write(range(3), partition=partition)
    archived(site)
    files = {int(path.parent.name[-1]): path for path in (place(site) / "data").rglob("*.parquet")}
    table = pq.read_table(files[0], partitioning=None)
    pq.write_table(table.slice(0, 2), files[0])
    files[1].unlink()
    data = bytearray(files[2].read_bytes())
    data[len(data) // 2] ^= 1
    files[2].write_bytes(data)
    shutil.copy(files[3], files[3].with_name("strange.parquet"))
    told = sorted(verified(site).differences)
    assert len(told) == 4
    assert told[0].endswith("strange.parquet is not in the index")
    assert told[1].startswith("partition 0, offsets 0 to 2: ")
    assert "its size or checksum is not that in the index" in told[1]
    assert "cannot be read" in told[2]
    assert "its size or checksum is not that in the index" in told[3]
