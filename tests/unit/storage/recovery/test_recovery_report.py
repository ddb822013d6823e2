"""Tests the log lines of a recovery: duration, bytes read and truncated, by data directory and by partition."""

import errno
import logging
from copy import deepcopy
from typing import Any

import pytest

from builders.batches import numbered_batch
from builders.logs import SMALL, append_durably, key, open_store, run
from builders.partitions import Site, committed
from millstream.process.logs import fields_of
from millstream.storage.recovery.recovery_report import report_recovered
from millstream.testing.simulated.disk import SimulatedDisk


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [fields_of(record) for record in caplog.records if record.msg == event]


def test_a_clean_start_is_logged_as_one_line_per_directory(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, "/a", "/b")
        await append_durably(store, await store.create(key(0), SMALL), [b"x"])
        await store.close()
        caplog.clear()
        await (await open_store(disk, "/a", "/b")).close()
        summaries = lines(caplog, "directory recovered")
        assert [line["path"] for line in summaries] == ["/a", "/b"]
        assert sorted(line["logs"] for line in summaries) == [0, 1]
        for line in summaries:
            assert {line[name] for name in ("recovered", "truncated", "quarantined", "bytes_read")} == {0}
            assert line["duration_ms"] >= 0

    run(check())


def test_a_partition_that_is_read_after_a_crash_is_logged_by_topic(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        partition = partitions.get("orders", 1)
        assert partition is not None
        await committed(partition, numbered_batch(3))
        size = partition.log.size_bytes
        caplog.clear()
        await site.restart(killed=True)
        (line,) = lines(caplog, "partition recovered")
        assert (line["topic"], line["partition"], line["end_offset"], line["bytes_read"]) == ("orders", 1, 3, size)
        assert (line["bytes_truncated"], line["duration_ms"] >= 0, "quarantined" in line) == (0, True, False)
        (summary,) = lines(caplog, "directory recovered")
        assert (summary["logs"], summary["recovered"], summary["bytes_read"]) == (2, 1, size)
        caplog.clear()
        await site.restart()
        assert lines(caplog, "partition recovered") == []

    Site().run(story)


def test_a_quarantined_partition_is_logged_by_topic_with_the_error(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")
        partition = partitions.get("orders", 0)
        assert partition is not None
        await committed(partition, numbered_batch(3))
        path = partition.log.segments[0].path
        await partitions.store.checkpoint()
        await site.kill()
        site.disk.remove(path)
        await site.start()
        (line,) = lines(caplog, "partition not recovered")
        assert (line["topic"], line["partition"]) == ("orders", 0)
        assert f"{path} is missing" in line["error"]

    Site().run(story)


def test_a_truncation_is_logged_with_its_bytes(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"kept"])
        end = log.segments[0].size_bytes
        disk.spoil(log.segments[0].path, end, b"torn tail")
        disk = deepcopy(disk)
        disk.locks.clear()
        caplog.clear()
        store = await open_store(disk)
        assert lines(caplog, "directory recovered")[0]["truncated"] == 1
        report_recovered(store.take_recovered(), {key(0).topic_id: "orders"})
        (line,) = lines(caplog, "log truncated at torn tail")
        assert (line["topic"], line["partition"], line["path"]) == ("orders", 0, log.path)
        assert (line["cut_segment_offset"], line["cut_position_bytes"], line["segments_set_aside"]) == (0, end, 0)
        assert line["bytes_truncated"] == len(b"torn tail")

    run(check())


def test_a_truncation_of_a_failed_start_is_logged_by_path(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"kept"])
        disk.spoil(log.segments[0].path, log.segments[0].size_bytes, b"torn tail")
        disk = deepcopy(disk)
        disk.locks.clear()
        store = await open_store(disk)  # The start fails before the partitions take the report.
        caplog.clear()
        await store.close()
        (line,) = lines(caplog, "log truncated at torn tail")
        assert (line["path"], "topic" in line) == (log.path, False)

    run(check())


def test_disk_errors_name_topic_and_partition_also_after_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        for restarts in (False, True):
            if restarts:
                await site.restart()
            caplog.clear()
            served = (site.partitions or partitions).get("orders", 1)
            assert served is not None
            served.log.refused(OSError(errno.EIO, "Input/output error"))
            served.log.health.read_failed(OSError(errno.EIO, "Input/output error"))
            for event in ("write failed", "read failed"):
                (line,) = lines(caplog, event)
                assert (line["topic"], line["partition"], line["path"]) == ("orders", 1, served.log.path)
            quarantine = served.log.quarantine
        quarantine("damaged")
        (line,) = lines(caplog, "partition quarantined")
        assert (line["topic"], line["partition"], line["error"]) == ("orders", 1, "damaged")

    Site().run(story)
