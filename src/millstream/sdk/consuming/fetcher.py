"""Reads partitions ahead of whoever wants their messages: one long poll at a time for each leader, about all it leads.

Runs by itself from `start` to `close`; what it brings is taken with `next_portion`. Invariants:

- What was fetched and not handed out stays within `prefetch_bytes`, shared evenly among the leaders, as long as no
  single batch is larger than a leader's share.
- A leader is asked for a partition by one poll at a time, so its portions come in the order of their offsets.
- Failures that may pass are waited out and asked anew, with the leader looked up again; `failure` holds the first of
  those that will not until somebody takes it, and reading stands still meanwhile.
- As long as a topic is missing of which partitions are read and not paused, nothing is read, and `missing` says so.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import BACKOFF_MAX_S, FEW_ATTEMPTS, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.decompression import Decompressor
from millstream.sdk.consuming.fetch_session import FetchSession, Found, Poll
from millstream.sdk.consuming.local_files import FileMovedError, LocalFileReader
from millstream.sdk.consuming.partition_reader import PIECE_BYTES, FetchedChunk, PartitionReader
from millstream.sdk.fetching import gone
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.responses import FetchedBatches

PREFETCH_BYTES = 32 * 1024 * 1024
POLL_WAIT_MS = 5_000
POLL_BYTES_MAX = 4 * 1024 * 1024
POLL_BYTES_MIN = 64 * 1024
LOOK_UP_S = 10.0
BACKOFF_MIN_S = 0.05

_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

log = logging.getLogger("millstream.sdk.consumer")


@dataclass(frozen=True, slots=True)
class FetcherRules:
    """Where consumers with and without a group differ."""

    prefetch_bytes: int = PREFETCH_BYTES
    waits_for_topics: bool = False
    """Whether a partition that is not there may still come: a group's coordinator sees to what is read."""
    waits_beyond_end: bool = True
    """Whether a position behind the end is waited for, or the log is taken for a new one that is read from its end."""
    moves_on: bool = True
    """Whether to go on at the nearest message where the next are gone, or to fail."""
    local_files: bool = True
    """Whether files of brokers of the same machine are read."""
    caller_reads: bool = False
    """Whether the caller reads them by itself, or is brought what was read."""


@dataclass(slots=True, eq=False)
class _Round:
    """One long poll: what was asked, and of whom."""

    readers: Mapping[TopicPartition, PartitionReader]
    offsets: Mapping[TopicPartition, int]
    task: "asyncio.Task[Found]"


@dataclass(slots=True)
class FetchFailure:
    """A failure that may pass, and since when there are such."""

    error: MillstreamError
    since_s: float


class Fetcher:
    """`changed` is called when there may be something to hand out, or to raise."""

    def __init__(self, asking: RetryingCaller, changed: Callable[[], None], rules: FetcherRules) -> None:
        self.readers: dict[TopicPartition, PartitionReader] = {}
        self.failure: MillstreamError | None = None
        self.trouble: FetchFailure | None = None
        self.piece_bytes = PIECE_BYTES
        """How large portions become, unless a batch alone is larger."""
        self._asking = asking
        self._cluster = asking.cluster
        self._changed = changed
        self._rules = rules
        self._portions: deque[FetchedChunk] = deque()
        self._unpacking = Decompressor(asking.workers, self._unpacked)
        self._rounds: dict[Address, _Round] = {}
        self._sessions: defaultdict[Address, FetchSession] = defaultdict(FetchSession)
        machine = self._cluster.machine if rules.local_files else ""
        self._nearby: defaultdict[Address, LocalFileReader] = defaultdict(lambda: LocalFileReader(machine))
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._retry_at_s: float | None = None
        """After a failure that may pass, when to try again; it stays until that is done, however time goes."""
        self._backoff_s = 0.0
        self._missing: dict[str, MillstreamError] = {}
        """Topics that are not there, to the best of our knowledge."""

    # What is read.

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="reading ahead")

    async def close(self) -> None:
        """Read no more, and let brokers forget what was polled for."""
        self.readers.clear()
        self._portions.clear()
        self._give_up_rounds()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for address, session in self._sessions.items():
            connection = self._cluster.open_connection(address)
            if connection is not None:
                session.end(connection)
        self._sessions.clear()

    def take(
        self, where: TopicPartition, offset: int, topic_id: UUID, stop_offset: int | None = None
    ) -> PartitionReader:
        """Read this partition too: of the topic of this id, and of no other that has its name later."""
        reader = self.readers[where] = PartitionReader(where, offset, offset, topic_id, stop_offset)
        self._begin_anew()
        return reader

    def release(self, where: TopicPartition) -> None:
        """Read this no more; what was fetched of it and not handed out is forgotten."""
        reader = self.readers.pop(where, None)
        self._forget_portions(reader)

    def seek(self, reader: PartitionReader, offset: int) -> None:
        """Go on from there."""
        self._forget_portions(reader)
        reader.move(offset)
        self._begin_anew()

    def pause(self, reader: PartitionReader) -> None:
        """Hand nothing out of it and fetch no more; what is there stays."""
        reader.is_paused = True
        if self._missing and self.missing is None:  # Nobody wants to read what is not there any longer.
            if self.failure is not None and self.failure.code in _MISSING:
                self.failure = None
            self.trouble = self._retry_at_s = None
            self._wake.set()

    def resume(self, reader: PartitionReader) -> None:
        if reader.is_paused:
            reader.is_paused = False
            self._begin_anew()
            self._changed()

    # What was read.

    @property
    def buffered_bytes(self) -> int:
        """Fetched, and not handed out."""
        return sum(portion.held_bytes for portion in self._portions)

    @property
    def is_polling(self) -> bool:
        """Whether an answer is waited for."""
        return bool(self._rounds)

    @property
    def missing(self) -> MillstreamError | None:
        """What is wrong with a topic that is to be read and is not there; None where all are."""
        if not self._missing:
            return None
        wanted = {reader.where.topic for reader in self.readers.values() if not reader.is_paused}
        return next((error for topic, error in self._missing.items() if topic in wanted), None)

    def take_failure(self) -> MillstreamError | None:
        """What is never going to work; reading tries on from now."""
        failure, self.failure = self.failure, None
        if failure is not None:
            self._wake.set()
        return failure

    def next_portion(self) -> FetchedChunk | None:
        """The messages that have waited longest, of a partition that is not paused; None while they are unpacked."""
        for at, portion in enumerate(self._portions):
            if not portion.reader.is_paused:
                if portion.is_packed:
                    self._unpacking.begin(portion, self.piece_bytes)
                    return None
                del self._portions[at]
                waiting = (each for each in self._portions if each.is_packed and not each.reader.is_paused)
                following = next(waiting, None)
                if following is not None:
                    self._unpacking.begin(following, self.piece_bytes)
                self._wake.set()
                return portion
        return None

    def _unpacked(self, portion: FetchedChunk, pieces: Sequence[FetchedChunk]) -> None:
        if portion in self._portions:
            at = self._portions.index(portion)
            self._portions.remove(portion)
            if portion.place is not None and pieces[0] is portion:
                self._ask_again(portion)
            else:
                for piece in reversed(pieces):
                    self._portions.insert(at, piece)
        self._changed()

    def put_back(self, portions: Sequence[FetchedChunk]) -> None:
        """These, in order, were not handed out after all."""
        for portion in reversed(portions):
            if self.readers.get(portion.reader.where) is portion.reader:
                self._portions.appendleft(portion)

    def refetch(self, portion: FetchedChunk, error: MillstreamError) -> None:
        """What came cannot be read: get it again; the error is raised when that has been tried often enough."""
        reader = portion.reader
        if self.readers.get(reader.where) is not reader:
            return
        self._ask_again(portion)
        if isinstance(error, FileMovedError):
            return
        self._failed(reader, MillstreamError(error.code, f"{reader.where}: {error.detail}"))

    def _ask_again(self, portion: FetchedChunk) -> None:
        """From this portion on, nothing of its partition was of use."""
        reader = portion.reader
        if self.readers.get(reader.where) is reader:
            self._portions = deque(
                each for each in self._portions if each.reader is not reader or each.offset < portion.offset
            )
            reader.fetch_offset = portion.offset
            self._begin_anew()

    # Reading ahead.

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            if self.failure is None:
                try:
                    await self._advance()
                except Exception as error:
                    self.failure = client_failed(log, "reading ahead", error)
                    self._pause()
                    self._changed()
            try:
                async with asyncio.timeout_at(self._retry_at_s if self.failure is None else None):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _advance(self) -> None:
        """Take in what polls have brought, and begin those that are due."""
        for address, each in list(self._rounds.items()):
            if each.task.done():
                del self._rounds[address]
                await self._take_in(each, self._nearby[address])
        if self._retry_at_s is not None and asyncio.get_running_loop().time() >= self._retry_at_s:
            self._retry_at_s = None
        if self._retry_at_s is None:
            await self._find_leaders()
            self._begin_rounds()

    async def _find_leaders(self) -> None:
        for reader in list(self.readers.values()):
            if reader.leader is None and not reader.is_paused:
                try:
                    await self._cluster.same_topic(reader.where.topic, reader.topic_id, Deadline(LOOK_UP_S))
                    reader.leader = await self._cluster.leader(*reader.where, Deadline(LOOK_UP_S))
                except MillstreamError as error:
                    self._failed(reader, error)
                    return
                self._missing.pop(reader.where.topic, None)

    def _begin_rounds(self) -> None:
        """Poll every leader that is asked nothing now and whose partitions have room for what it may answer."""
        if self._retry_at_s is not None or self.failure is not None:
            return
        wanting: dict[Address, list[PartitionReader]] = {}
        for reader in self.readers.values():
            if reader.leader is not None:
                wanting.setdefault(reader.leader, [])
                if reader.wants_more and reader.leader not in self._rounds:
                    wanting[reader.leader].append(reader)
        if not wanting:
            return
        share_bytes = self._rules.prefetch_bytes // len(wanting)
        poll_bytes = max(POLL_BYTES_MIN, min(POLL_BYTES_MAX, share_bytes // 2))
        held: dict[Address | None, int] = {}
        for portion in self._portions:
            held[portion.reader.leader] = held.get(portion.reader.leader, 0) + portion.held_bytes
        for address, readers in wanting.items():
            if readers and held.get(address, 0) <= max(0, share_bytes - poll_bytes):
                self._begin_round(address, readers, poll_bytes)

    def _begin_round(self, address: Address, readers: list[PartitionReader], poll_bytes: int) -> None:
        offsets = {reader.where: reader.fetch_offset for reader in readers}
        ids = {reader.where.topic: reader.topic_id for reader in readers}
        task = asyncio.create_task(self._poll(address, offsets, ids, poll_bytes), name=f"poll of {address}")
        task.add_done_callback(lambda _: self._wake.set())
        self._rounds[address] = _Round({reader.where: reader for reader in readers}, offsets, task)

    async def _poll(
        self, address: Address, offsets: Mapping[TopicPartition, int], topic_ids: dict[str, UUID], poll_bytes: int
    ) -> Found:
        wait_s = POLL_WAIT_MS / 1000
        deadline = Deadline(wait_s + LOOK_UP_S)
        # With many, each gets only so much that the others have their turn in the same answer.
        partition_bytes = max(POLL_BYTES_MIN, poll_bytes // min(len(offsets), 4))
        async with self._cluster.polling(address, deadline) as connection:
            machine = self._nearby[address].machine(connection)
            poll = Poll(offsets, topic_ids, poll_bytes, partition_bytes, POLL_WAIT_MS, machine)
            return await self._sessions[address].poll(poll, connection, self._cluster.timeout_s(deadline, wait_s))

    async def _take_in(self, done: _Round, nearby: LocalFileReader) -> None:
        try:
            answer = done.task.result()
        except MillstreamError as error:
            for where, reader in done.readers.items():
                if self.readers.get(where) is reader:
                    self._failed(reader, error)
            return
        self._backoff_s = 0.0
        self.trouble = None
        for where, found in answer.items():
            reader = done.readers[where]
            if self.readers.get(where) is not reader or reader.fetch_offset != done.offsets[where]:
                continue  # It was released meanwhile, or is read elsewhere.
            if not isinstance(found, MillstreamError):
                self._keep(reader, found, nearby)
            elif found.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._move_to_nearest(reader)
            else:
                self._failed(reader, found)
        self._changed()

    def _keep(self, reader: PartitionReader, fetched: FetchedBatches, nearby: LocalFileReader) -> None:
        reader.high_watermark = fetched.high_watermark
        if not len(fetched.batches) and fetched.place is None:
            reader.failures = 0
            return
        if fetched.place is None:
            portions = list(FetchedChunk.each(reader, fetched, self.piece_bytes))
        else:
            portions = [FetchedChunk.lying(reader, fetched, nearby, is_packed=not self._rules.caller_reads)]
        reader.fetch_offset = portions[-1].next_offset
        self._portions += portions
        # An answer has room for the first partitions asked for: who had a turn goes to the end of the line.
        self.readers[reader.where] = self.readers.pop(reader.where)

    async def _move_to_nearest(self, reader: PartitionReader) -> None:
        """What was next is not there: gone, by age or because the topic was cut, or not written yet."""
        where = reader.where
        asked = reader.fetch_offset
        deadline = Deadline(LOOK_UP_S)
        try:
            first = (await self._asking.leaders({where: BEGINNING}, requests.list_offsets, deadline))[where].offset
            last = (await self._asking.leaders({where: LATEST}, requests.list_offsets, deadline))[where].offset
        except MillstreamError as error:
            self._failed(reader, error)
            return
        nearest = max(first, min(asked, last))
        if asked > last and self._rules.waits_beyond_end:
            self._pause()  # Not every broker waits by itself for a place that is not reached.
            return
        if reader.fetch_offset != asked or nearest == asked:
            return
        if not self._rules.moves_on:
            self._failed(reader, gone(where, asked, first))
            return
        log.warning("%s has messages from %d to %d: going on at %d instead of %d", where, first, last, nearest, asked)
        self._forget_portions(reader)
        reader.move(nearest)

    def _failed(self, reader: PartitionReader, error: MillstreamError) -> None:
        """Wait a little and ask anew who leads; damage that stays, and what is never going to work, is to be raised."""
        self._cluster.forget(reader.where.topic)
        reader.leader = None
        now_s = asyncio.get_running_loop().time()
        self.trouble = FetchFailure(error, now_s if self.trouble is None else self.trouble.since_s)
        if self._is_final(reader, error):
            if error.code in _MISSING:
                self._missing[reader.where.topic] = error  # Failures count on: the next is told at once.
            else:
                reader.failures = 0
            self.failure = self.failure or error
        self._pause()
        self._wake.set()
        self._changed()

    def _pause(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._retry_at_s is None or self._retry_at_s <= now_s:
            self._backoff_s = min(max(2 * self._backoff_s, BACKOFF_MIN_S), BACKOFF_MAX_S)
            self._retry_at_s = now_s + self._backoff_s

    def _is_final(self, reader: PartitionReader, error: MillstreamError) -> bool:
        if error.code is ErrorCode.CORRUPT_MESSAGE or (error.code in _MISSING and not self._rules.waits_for_topics):
            reader.failures += 1
        return not error.code.retriable or reader.failures >= FEW_ATTEMPTS

    def _forget_portions(self, reader: PartitionReader | None) -> None:
        self._portions = deque(portion for portion in self._portions if portion.reader is not reader)

    def _begin_anew(self) -> None:
        """Polls under way ask for something else now: they are given up and begun again."""
        self._give_up_rounds()
        self._wake.set()

    def _give_up_rounds(self) -> None:
        for each in self._rounds.values():
            if not each.task.cancel() and not each.task.cancelled():
                each.task.exception()  # Marks it as seen: what it brought is asked for again, or not at all.
        self._rounds.clear()
