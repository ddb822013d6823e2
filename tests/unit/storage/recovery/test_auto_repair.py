"""A log that breaks is mended, at whatever moment it breaks."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from millstream.seams.workers import ThreadWorkers
from millstream.storage.recovery.auto_repair import AutoRepair


async def _no_round() -> None:
    """No flush is under way."""


def test_a_log_that_breaks_again_just_as_its_repair_ends_is_repaired_again() -> None:
    log = Mock(broken="full", quarantined=None, is_deleted=False, segments=[], path="log", end_offset=0)
    directory: Any = SimpleNamespace(commits=SimpleNamespace(round_over=_no_round), path="data")

    async def story() -> None:
        log.exchanging = asyncio.Lock()
        auto_repair = AutoRepair(directory, ThreadWorkers(1, "unused"))

        def break_again() -> None:
            assert log.broken is None, "the repair has not ended yet"
            log.broken = "full again"
            auto_repair.mend(log)

        auto_repair.mend(log)
        # Runs after the repair's last step, and before anybody is told that the repair is over.
        asyncio.get_running_loop().call_soon(break_again)
        await auto_repair.all_mended()
        await asyncio.sleep(0)
        await auto_repair.all_mended()

    asyncio.run(story())
    assert log.broken is None
