"""A disk that refuses writes is told of in the broker's log: with the reason, and not once for every write."""

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


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and text of each line that an operator sees."""
    lines = [record for record in caplog.records if record.levelno >= logging.INFO]
    return [(record.levelname, record.getMessage()) for record in lines]


async def refuse_some(log: Log, count: int) -> None:
    """Writes that are refused, each after the log was repaired from the one before."""
    for _ in range(count):
        with pytest.raises(MillstreamError):
            append(log, [b"x" * 100])
        await asyncio.sleep(1)
        assert log.broken is None


def test_a_full_disk_is_told_once_with_the_reason_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="millstream")

    async def check() -> None:
        disk = SimulatedDisk()
        clock = ManualClock()
        store = await open_store(disk, clock=clock)
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"before"])
        disk.is_full = True
        await refuse_some(log, 9)
        assert told(caplog) == [("WARNING", "a write was refused")]
        fields = caplog.records[0].__dict__
        assert fields["log"] == log.path
        assert "space" in fields["why"]
        assert log.refused_s == clock.monotonic_s()
        disk.is_full = False
        for _ in range(3):
            await append_durably(store, log, [b"after"])
        assert told(caplog)[1:] == [("INFO", "writes work again")]

    run(check())


def test_a_failed_flush_is_told_with_its_reason_and_so_is_the_repair(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="millstream")

    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
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
        assert [text for _, text in told(caplog)] == ["a write was refused", "a log was repaired", "writes work again"]
        assert "Input/output error" in caplog.records[0].__dict__["why"]
        assert "Input/output error" in next(r.__dict__["after"] for r in caplog.records if "repaired" in r.getMessage())

    run(check())


def test_trouble_that_lasts_is_told_again_with_how_much_was_left_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    trouble = DiskErrorLog(clock)
    for _ in range(5):
        trouble.refused("/data/a", FULL)
    clock.advance_ms(int(EVERY_S * 1000))
    trouble.refused("/data/b", FULL)
    assert [(record.__dict__["log"], record.__dict__["left_out"]) for record in caplog.records] == [
        ("/data/a", 0),
        ("/data/b", 4),
    ]


def test_reads_and_writes_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    trouble = DiskErrorLog(ManualClock())
    trouble.refused("/data/a", FULL)
    trouble.unreadable("/data/a", OSError(errno.EIO, "Input/output error"))
    trouble.unreadable("/data/a", OSError(errno.EIO, "Input/output error"))
    assert [text for _, text in told(caplog)] == ["a write was refused", "a read failed"]
