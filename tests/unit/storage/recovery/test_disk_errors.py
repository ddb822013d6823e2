"""Checks that disk errors are logged with their cause, and with a rate limit."""

import asyncio
import errno
import logging

import pytest

from builders.logs import SMALL, append, append_durably, key, open_store, run
from millstream.model.errors import MillstreamError
from millstream.storage.log.log import Log
from millstream.storage.recovery.disk_errors import EVERY_S, DiskErrorLog
from millstream.testing.simulated.clock import ManualClock
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk

FULL = OSError(errno.ENOSPC, "No space left on device")


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and text of each line that an operator sees."""
    lines = [record for record in caplog.records if record.levelno >= logging.INFO]
    return [(record.levelname, record.getMessage()) for record in lines]


async def refuse_some(log: Log, count: int) -> None:
    """Fail `count` writes, each after the log was repaired."""
    for _ in range(count):
        with pytest.raises(MillstreamError):
            append(log, [b"x" * 100])
        await asyncio.sleep(1)
        assert log.health.broken is None


def test_a_full_disk_is_logged_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="millstream")

    async def check() -> None:
        disk = SimulatedDisk()
        clock = ManualClock()
        store = await open_store(disk, clock=clock)
        caplog.clear()
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"before"])
        disk.is_full = True
        await refuse_some(log, 9)
        assert logged(caplog) == [("WARNING", "write failed")]
        fields = caplog.records[0].__dict__
        assert fields["path"] == log.path
        assert "space" in fields["error"]
        assert log.health.refused_s == clock.monotonic_s()
        disk.is_full = False
        for _ in range(3):
            await append_durably(store, log, [b"after"])
        assert logged(caplog)[1:] == [("INFO", "writes recovered")]

    run(check())


def test_a_failed_flush_and_its_repair_are_logged_with_the_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="millstream")

    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        caplog.clear()
        log = await store.create(key(0), SMALL)
        failures = iter([True])

        def fail_once(operation: DiskOperation) -> None:
            if operation.kind == "flush" and operation.path.endswith(".log") and next(failures, False):
                raise OSError(errno.EIO, "Input/output error")

        disk.before = fail_once
        with pytest.raises(MillstreamError):
            await append_durably(store, log, [b"lost or not"])
        await asyncio.sleep(20)
        await append_durably(store, log, [b"after"])
        assert [text for _, text in logged(caplog)] == ["write failed", "log repaired", "writes recovered"]
        assert "Input/output error" in caplog.records[0].__dict__["error"]
        assert "Input/output error" in next(r.__dict__["error"] for r in caplog.records if "repaired" in r.getMessage())

    run(check())


def test_a_lasting_disk_error_is_logged_again_with_a_suppressed_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    trouble = DiskErrorLog(clock)
    for _ in range(5):
        trouble.refused({"path": "/data/a"}, FULL)
    clock.advance_ms(int(EVERY_S * 1000))
    trouble.refused({"path": "/data/b"}, FULL)
    assert [(record.__dict__["path"], record.__dict__["suppressed"]) for record in caplog.records] == [
        ("/data/a", 0),
        ("/data/b", 4),
    ]


def test_failed_reads_and_writes_are_limited_separately(caplog: pytest.LogCaptureFixture) -> None:
    trouble = DiskErrorLog(ManualClock())
    trouble.refused({"path": "/data/a"}, FULL)
    trouble.unreadable({"path": "/data/a"}, OSError(errno.EIO, "Input/output error"))
    trouble.unreadable({"path": "/data/a"}, OSError(errno.EIO, "Input/output error"))
    assert [text for _, text in logged(caplog)] == ["write failed", "read failed"]
