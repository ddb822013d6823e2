"""Runs compaction rounds over all partitions of compacted topics."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.partition.leadership import Leadership
from millstream.storage.store import LogStore

INTERVAL_S = 15.0
"""Time between two rounds."""

_SLICE = 100
_log = logging.getLogger(__name__)


class Compactable(Protocol):
    """The part of the registry that compaction uses."""

    def all(self) -> Sequence[Leadership]: ...


class CompactionSchedule:
    """Runs one round after another until `stop`."""

    def __init__(self, kept: Compactable, store: LogStore, interval_s: float = INTERVAL_S) -> None:
        self._kept = kept
        self._store = store
        self._interval_s = interval_s
        self._stopping = asyncio.Event()
        self._rounds: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._rounds = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop the rounds. A running round ends early and leaves each log either unchanged or cleaned."""
        self._stopping.set()
        await self._store.stop_cleaning()
        if self._rounds is not None:
            await asyncio.wait([self._rounds])

    async def round(self) -> None:
        """Clean the logs whose cleanable part is large enough."""
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
                await partition.replica.cleaned()
            except MillstreamError as error:
                fields = {"topic": partition.topic, "partition": partition.number, "error": str(error)}
                _log.warning("snapshot after compaction failed", extra=fields)

    async def _run(self) -> None:
        """Run rounds until `stop`. A failed round is logged, and the next round tries again."""
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval_s)
            if self._stopping.is_set():
                return
            try:
                await self.round()
            except Exception as error:
                _log.warning("compaction failed, will be retried", extra={"error": repr(error)})
