"""Compaction from time to time: which partitions want it, and what it must leave of them."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.partition.partition import Partition
from millstream.storage.store import LogStore

INTERVAL_S = 15.0
"""How late compaction looks at the latest, when it has nothing to do."""

_SLICE = 100
_log = logging.getLogger(__name__)


class Compactable(Protocol):
    """What cleaning knows of the registry."""

    def all(self) -> Sequence[Partition]: ...


class CompactionSchedule:
    """Rounds over all partitions of compacted topics, one after another. Ended by `stop`."""

    def __init__(self, kept: Compactable, store: LogStore, interval_s: float = INTERVAL_S) -> None:
        self._kept = kept
        self._store = store
        self._interval_s = interval_s
        self._stopping = asyncio.Event()
        self._rounds: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._rounds = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """No more rounds; one that is under way gives up soon and leaves the logs as they were or cleaned."""
        self._stopping.set()
        await self._store.stop_cleaning()
        if self._rounds is not None:
            await asyncio.wait([self._rounds])

    async def round(self) -> None:
        """Clean what is dirty enough."""
        wanted = {}
        for count, partition in enumerate(self._kept.all()):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
            if partition.settings.compact and not partition.is_closed and not partition.is_suspended:
                wanted[partition.log] = partition
        changed = await self._store.clean([partition.cleaning_job() for partition in wanted.values()])
        for partition in (wanted[log] for log in changed):
            if partition.is_closed:
                continue
            try:
                await partition.cleaned()
            except MillstreamError as error:
                _log.warning("no snapshot of what was cleaned", extra={"partition": str(partition), "why": str(error)})

    async def _run(self) -> None:
        """Whatever fails is reported and tried again in the next round; it must not end the rounds."""
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval_s)
            if self._stopping.is_set():
                return
            try:
                await self.round()
            except Exception as error:
                _log.warning("cleaning failed, will be tried again", extra={"why": repr(error)})
