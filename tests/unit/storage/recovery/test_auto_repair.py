"""Checks that a broken log is repaired whenever it breaks."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from builders.logs import key
from millstream.seams.workers import ThreadWorkers
from millstream.storage.log.log_health import LogHealth
from millstream.storage.log.log_label import LogLabel
from millstream.storage.recovery.auto_repair import AutoRepair
from millstream.storage.recovery.disk_errors import DiskErrorLog
from millstream.testing.simulated.clock import ManualClock


async def _no_round() -> None:
    """A stub without running flushes."""


def test_a_log_that_breaks_at_the_end_of_its_repair_is_repaired_again() -> None:
    clock = ManualClock()
    label = LogLabel(key(0), "log")
    health = LogHealth(label, clock, DiskErrorLog(clock))
    health.write_failed(OSError("full"))
    log = Mock(
        health=health, label=label, repaired=health.repaired, is_deleted=False, segments=[], path="log", end_offset=0
    )
    directory: Any = SimpleNamespace(commits=SimpleNamespace(round_over=_no_round), path="data")

    async def story() -> None:
        log.cleaning.lock = asyncio.Lock()
        auto_repair = AutoRepair(directory, ThreadWorkers(1, "unused"))

        def break_again() -> None:
            assert health.broken is None, "the repair has not ended yet"
            health.write_failed(OSError("full again"))
            auto_repair.repair(log)

        auto_repair.repair(log)
        # Runs after the repair's last step, and before anybody is told that the repair is over.
        asyncio.get_running_loop().call_soon(break_again)
        await auto_repair.all_repaired()
        await asyncio.sleep(0)
        await auto_repair.all_repaired()

    asyncio.run(story())
    assert health.broken is None
