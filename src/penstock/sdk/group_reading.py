"""Reads the partitions that a member of a group owns: one long poll for each leader, what it brings handed out in turn.

The next poll of a leader begins when the last messages of the one before have been handed out: so all its partitions
are in it, none waits behind another's silence, and fetching goes on while the reader works.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.sdk import requests
from penstock.sdk.address import Address
from penstock.sdk.asking import Asking
from penstock.sdk.fetching import Fetched, read_batches
from penstock.sdk.requests import BEGINNING, LATEST
from penstock.sdk.retry import BACKOFF_MAX_S, FEW_ATTEMPTS, Deadline

POLL_WAIT_MS = 5_000
POLL_BYTES = 4 * 1024 * 1024
PARTITION_BYTES = 1024 * 1024
LOOK_UP_S = 10.0


@dataclass(slots=True, eq=False)
class Reader:
    """One partition while it is owned."""

    where: TopicPartition
    fetch_offset: int
    """Where the next fetch begins: behind all that was fetched, handed out or not."""
    handed_offset: int
    """Behind all that was handed out."""
    leader: Address | None = None
    damaged: int = 0
    """How often in a row what came could not be read."""


class Portion(NamedTuple):
    reader: Reader
    fetched: Fetched


_Results = dict[TopicPartition, Fetched | PenstockError]


@dataclass(slots=True, eq=False)
class _Round:
    """One long poll: what was asked, and of whom."""

    readers: Mapping[TopicPartition, Reader]
    offsets: Mapping[TopicPartition, int]
    task: "asyncio.Task[_Results]"


class GroupReading:
    """`changed` is called when there may be something to hand out."""

    def __init__(self, asking: Asking, changed: Callable[[], None]) -> None:
        self.readers: dict[TopicPartition, Reader] = {}
        self._asking = asking
        self._cluster = asking.cluster
        self._changed = changed
        self._portions: deque[Portion] = deque()
        self._rounds: dict[Address, _Round] = {}
        self._not_before_s = 0.0
        self._backoff_s = 0.0

    def take(self, where: TopicPartition, offset: int) -> None:
        """Read this partition too. Polls under way do not have it, so they are given up and begun anew with it."""
        self.readers[where] = Reader(where, offset, offset)
        self._give_up_rounds()

    def release(self, where: TopicPartition) -> None:
        """Read this no more; what was fetched of it and not handed out is forgotten."""
        reader = self.readers.pop(where, None)
        self._portions = deque(portion for portion in self._portions if portion.reader is not reader)

    def close(self) -> None:
        self.readers.clear()
        self._portions.clear()
        self._give_up_rounds()

    @property
    def retry_in_s(self) -> float | None:
        """How soon to try again after a failure that may pass; None where there was none."""
        left_s = self._not_before_s - asyncio.get_running_loop().time()
        return left_s if left_s > 0 else None

    def next_portion(self) -> Portion | None:
        """The messages that have waited longest; they count as handed out from now on."""
        if not self._portions:
            return None
        portion = self._portions.popleft()
        portion.reader.handed_offset = portion.fetched.next_offset
        self._begin_rounds()
        return portion

    async def advance(self) -> None:
        """Take in what polls have brought, and begin those that are due; a failure that will last is raised."""
        for address, each in list(self._rounds.items()):
            if each.task.done():
                del self._rounds[address]
                await self._take_in(each)
        if self.retry_in_s is None:
            await self._find_leaders()
            self._begin_rounds()

    async def _find_leaders(self) -> None:
        for reader in list(self.readers.values()):
            if reader.leader is None:
                try:
                    reader.leader = await self._cluster.leader(*reader.where, Deadline(LOOK_UP_S))
                except PenstockError as error:
                    self._failed(reader, error)

    def _begin_rounds(self) -> None:
        """Poll every leader that is asked nothing now and whose last answer has been handed out whole."""
        if self.retry_in_s is not None:
            return
        busy = {portion.reader.leader for portion in self._portions} | self._rounds.keys()
        idle: dict[Address, list[Reader]] = {}
        for reader in self.readers.values():
            if reader.leader is not None and reader.leader not in busy:
                idle.setdefault(reader.leader, []).append(reader)
        for address, readers in idle.items():
            offsets = {reader.where: reader.fetch_offset for reader in readers}
            task = asyncio.create_task(self._poll(address, offsets), name=f"group poll of {address}")
            task.add_done_callback(lambda _: self._changed())
            self._rounds[address] = _Round({reader.where: reader for reader in readers}, offsets, task)

    async def _poll(self, address: Address, offsets: Mapping[TopicPartition, int]) -> _Results:
        wait_s = POLL_WAIT_MS / 1000
        deadline = Deadline(wait_s + LOOK_UP_S)
        request = requests.fetch_many(
            offsets, max_bytes=POLL_BYTES, partition_bytes=PARTITION_BYTES, max_wait_ms=POLL_WAIT_MS
        )
        async with self._cluster.polling(address, deadline) as connection:
            answer = await connection.request(request, self._cluster.timeout_s(deadline, wait_s))
        results: _Results = {}
        for where, batches in answer.items():
            try:
                results[where] = (
                    batches if isinstance(batches, PenstockError) else read_batches(batches, offsets[where])
                )
            except PenstockError as error:
                results[where] = PenstockError(error.code, f"{where}: {error.detail}")
        return results

    async def _take_in(self, done: _Round) -> None:
        try:
            results = done.task.result()
        except PenstockError as error:
            for where, reader in done.readers.items():
                if self.readers.get(where) is reader:
                    self._failed(reader, error)
            return
        self._backoff_s = 0.0
        for where, result in results.items():
            reader = done.readers[where]
            if self.readers.get(where) is not reader:
                continue  # It was released meanwhile.
            if isinstance(result, Fetched):
                self._keep(reader, result)
            elif result.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._move_to_nearest(reader)
            else:
                self._failed(reader, result)

    def _keep(self, reader: Reader, fetched: Fetched) -> None:
        reader.damaged = 0
        reader.fetch_offset = fetched.next_offset
        if fetched.records:
            self._portions.append(Portion(reader, fetched))
            # An answer has room for the first partitions asked for: who had a turn goes to the end of the line.
            self.readers[reader.where] = self.readers.pop(reader.where)
        else:
            reader.handed_offset = fetched.next_offset  # Places without messages need nobody's hand.

    async def _move_to_nearest(self, reader: Reader) -> None:
        """What was next is gone, by age or because the topic was cut: go on at the nearest place there is."""
        deadline = Deadline(LOOK_UP_S)
        where = reader.where
        try:
            first = await self._asking.leaders({where: BEGINNING}, requests.list_offsets, deadline)
            last = await self._asking.leaders({where: LATEST}, requests.list_offsets, deadline)
        except PenstockError as error:
            self._failed(reader, error)
            return
        reader.fetch_offset = max(first[where].offset, min(reader.fetch_offset, last[where].offset))
        reader.handed_offset = reader.fetch_offset

    def _failed(self, reader: Reader, error: PenstockError) -> None:
        """Wait a little and ask anew who leads; damage that stays, and what is never going to work, is raised."""
        self._cluster.forget(reader.where.topic)
        reader.leader = None
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            reader.damaged += 1
        if not error.code.retriable or reader.damaged >= FEW_ATTEMPTS:
            raise error
        now_s = asyncio.get_running_loop().time()
        if self._not_before_s <= now_s:
            self._backoff_s = min(max(2 * self._backoff_s, 0.05), BACKOFF_MAX_S)
            self._not_before_s = now_s + self._backoff_s

    def _give_up_rounds(self) -> None:
        for each in self._rounds.values():
            if not each.task.cancel() and not each.task.cancelled():
                each.task.exception()  # Marks it as seen: what it brought is asked for again, or not at all.
        self._rounds.clear()
