"""Checks that reads detect damage in a running broker, log it once, and never return it."""

import logging
from collections.abc import Callable

import pytest

from builders.logs import SMALL, append, append_durably, commit, key, open_store, read_cold, run
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.storage.log.failed_reads import read_failed
from millstream.storage.log.log import Log
from millstream.storage.store import LogStore
from millstream.testing.simulated.disk import SimulatedDisk

Damage = Callable[[SimulatedDisk, str], None]


def remove(disk: SimulatedDisk, path: str) -> None:
    disk.remove(path)


def shorten(disk: SimulatedDisk, path: str) -> None:
    disk.cut(path, len(disk.contents(path)) - 10)


def empty(disk: SimulatedDisk, path: str) -> None:
    disk.cut(path, 0)


def flip_in_a_record(disk: SimulatedDisk, path: str) -> None:
    disk.spoil(path, 70, b"\xff")


def flip_in_the_last_record(disk: SimulatedDisk, path: str) -> None:
    disk.spoil(path, len(disk.contents(path)) - 1, b"\xff")


def flip_in_a_header(disk: SimulatedDisk, path: str) -> None:
    disk.spoil(path, 16, b"\x07")


def read_all(log: Log) -> bytes:
    return read_cold(log, Offset(0), max_bytes=10_000, end_offset=log.end_offset)


def read_one(log: Log) -> bytes:
    data, offset = b"", 0
    while offset < log.segments[0].next_offset:
        data += read_cold(log, Offset(offset), max_bytes=1, end_offset=log.end_offset)
        offset += 1
    return data


def look_for_a_time(log: Log) -> object:
    return log.scan.offset_for_time(1_000)


def walk_headers(log: Log) -> object:
    return list(log.scan.headers_from(Offset(0)))


async def filled(disk: SimulatedDisk) -> tuple[LogStore, Log]:
    """Create a log of several segments, and open it again without cached data."""
    store = await open_store(disk)
    log = await store.create(key(0), SMALL)
    for number in range(80):
        await append_durably(store, log, [b"%d" % number])
    await store.close()
    store = await open_store(disk)
    found = store.get(key(0))
    assert found is not None
    assert len(found.segments) > 2
    return store, found


@pytest.mark.parametrize(
    ("damage", "look"),
    [
        (remove, read_all),
        (shorten, read_all),
        (empty, read_all),
        (flip_in_a_record, read_all),
        (flip_in_the_last_record, read_all),
        (flip_in_a_header, read_all),
        (flip_in_a_record, read_one),
        (flip_in_the_last_record, read_one),
        (remove, look_for_a_time),
        (empty, look_for_a_time),
        (flip_in_a_record, look_for_a_time),
        (remove, walk_headers),
        (shorten, walk_headers),
    ],
)
def test_damage_in_flushed_data_quarantines_the_log_and_is_logged_once(
    damage: Damage, look: Callable[[Log], object], caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, log = await filled(disk)
        damage(disk, log.segments[0].path)
        for _ in range(3):
            with pytest.raises(MillstreamError) as refused:
                look(log)
            assert refused.value.code is ErrorCode.PARTITION_QUARANTINED
            assert log.segments[0].path in refused.value.detail
        logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert [(record.getMessage(), record.__dict__["path"]) for record in logged] == [
            ("partition quarantined", log.path)
        ]
        with pytest.raises(MillstreamError):
            await append_durably(store, log, [b"after"])

    run(check())


def test_damage_in_unflushed_data_fails_reads_without_a_quarantine(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        logs = [await store.create(key(number), SMALL) for number in range(2)]
        for log in logs:
            await append_durably(store, log, [b"flushed"])
        commits = []
        for log in logs:
            append(log, [b"journaled"])
            commits.append(commit(log))
        for committed in commits:
            assert committed is not None
            await committed
        log = logs[0]
        segment = log.segments[0]
        assert segment.flushed.position < segment.end.position, "the journal took it"
        disk.spoil(segment.path, segment.end.position - 1, b"\xff")
        for _ in range(3):
            with pytest.raises(MillstreamError) as refused:
                read_cold(log, Offset(1), max_bytes=10_000, end_offset=log.end_offset)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert "cannot be read" in refused.value.detail
        assert log.health.quarantined is None
        assert [record.getMessage() for record in caplog.records].count("read failed") == 1

    run(check())


def test_a_log_that_is_being_deleted_is_not_quarantined(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        store, log = await filled(SimulatedDisk())
        await store.delete(log.key)
        with pytest.raises(MillstreamError) as refused:
            read_all(log)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.health.quarantined is None
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    run(check())


def test_a_read_of_a_segment_removed_by_retention_is_not_damage() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, log = await filled(disk)
        removed = log.segments[0].path
        log.trim(log.end_offset)
        await store.checkpoint()
        with pytest.raises(FileNotFoundError) as missing:
            disk.open(removed)
        assert read_failed(log, missing.value).code is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.health.quarantined is None

    run(check())
