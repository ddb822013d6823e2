"""Prefetches partitions in the background: one long poll at a time per leader, for all partitions that it leads.

The fetcher runs from `start` to `close`. `next_chunk` returns the fetched chunks.

Invariants: each leader has at most one long poll in flight, so the chunks of a partition arrive in offset order. Every
reader has a feed of its own. Guarantees:

- Chunks that were fetched and not returned stay within `prefetch_bytes`, which the leaders share evenly, as long as no
  single batch is larger than a leader's share.
- A failed partition waits for the backoff of its feed; the other partitions continue. When a feed gives up, fetching
  stops until the owner takes the failure (`take_failure`).
- A missing topic does not delay the other topics. If no other topic is left that exists and is not paused, nothing is
  fetched, and `missing` returns the error.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import TopicPartition
from millstream.process.log_event import LogEvent
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import FEW_ATTEMPTS, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.decompression import Decompressor
from millstream.sdk.consuming.fetch_session import FetchSession, Found, Poll
from millstream.sdk.consuming.partition_reader import PartitionReader
from millstream.sdk.feed.feed_set import LOOK_UP_S, FeedSet
from millstream.sdk.feed.fetched_chunk import PIECE_BYTES, FetchedChunk
from millstream.sdk.feed.local_files import FileMovedError, LocalFileReader
from millstream.sdk.feed.partition_feed import FeedPosition, FeedRules, PartitionFeed, RangeOutcome
from millstream.sdk.reader_defaults import PREFETCH_BYTES
from millstream.sdk.responses import FetchedBatches

POLL_WAIT_MS = 5_000
POLL_BYTES_MAX = 4 * 1024 * 1024
POLL_BYTES_MIN = 64 * 1024

log = logging.getLogger("millstream.sdk.consumer")


@dataclass(frozen=True, slots=True)
class FetcherRules:
    """The settings in which consumers with and without a group differ."""

    prefetch_bytes: int = PREFETCH_BYTES
    waits_for_topics: bool = False
    """True to wait for a missing partition without limit; the group's coordinator decides which partitions exist."""
    waits_beyond_end: bool = True
    """True to wait for an offset after the log end; false to treat it as out of range."""
    moves_on: bool = True
    """True to continue at the nearest offset when the next one does not exist any more; false to fail."""
    local_files: bool = True
    """True to read the files of brokers on the same machine."""
    reads_others: bool = False
    """True to go on with the other topics when one is missing; false to fail."""
    caller_reads: bool = False
    """True if the caller reads local files itself; false to deliver chunks already read."""

    @property
    def feed_rules(self) -> FeedRules:
        return FeedRules(None if self.waits_for_topics else FEW_ATTEMPTS, self.waits_beyond_end, self.moves_on)


@dataclass(slots=True, eq=False)
class _Round:
    """One long poll in flight: its leader, and the partitions with their positions."""

    leader: Address
    readers: Mapping[TopicPartition, PartitionReader]
    positions: Mapping[TopicPartition, FeedPosition]
    task: "asyncio.Task[Found]"


class Fetcher:
    """Prefetches for one consumer; calls `changed` when there may be a chunk to return or a failure to raise."""

    def __init__(self, asking: RetryingCaller, changed: Callable[[], None], rules: FetcherRules) -> None:
        self.readers: dict[TopicPartition, PartitionReader] = {}
        self.piece_bytes = PIECE_BYTES
        """Target size of a chunk; a single larger batch makes a larger chunk."""
        self._asking = asking
        self._cluster = asking.cluster
        self._changed = changed
        self._rules = rules
        self._feeds = FeedSet(asking, rules.feed_rules, reads_others=rules.reads_others)
        self._chunks: deque[FetchedChunk] = deque()
        self._unpacking = Decompressor(asking.workers, self._unpacked)
        self._rounds: dict[Address, _Round] = {}
        self._sessions: defaultdict[Address, FetchSession] = defaultdict(FetchSession)
        machine = self._cluster.machine if rules.local_files else ""
        self._nearby: defaultdict[Address, LocalFileReader] = defaultdict(lambda: LocalFileReader(machine))
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # Partitions.

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="reading ahead")

    async def close(self) -> None:
        """Stop fetching, and close the fetch sessions."""
        self.readers.clear()
        self._feeds.clear()
        self._chunks.clear()
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
        self, where: TopicPartition, offset: int, topic_id: TopicId, stop_offset: int | None = None
    ) -> PartitionReader:
        """Start to read this partition. A topic of the same name with another id is not read."""
        reader = self.readers[where] = PartitionReader(self._feeds.add(where, offset, topic_id), stop_offset)
        assert len(self.readers) == len(self._feeds), "every reader has a feed of its own"
        self._begin_anew()
        return reader

    def release(self, where: TopicPartition) -> None:
        """Stop reading this partition, and discard its chunks that were not returned."""
        reader = self.readers.pop(where, None)
        self._feeds.remove(where)
        if reader is not None:
            self._forget_chunks(reader.feed)

    def seek(self, reader: PartitionReader, offset: int) -> None:
        """Discard the partition's chunks and continue at this offset."""
        self._forget_chunks(reader.feed)
        reader.move(offset)
        self._begin_anew()

    def pause(self, reader: PartitionReader) -> None:
        """Neither fetch nor return chunks of this partition; chunks that were fetched are kept."""
        self._feeds.pause(reader.feed)
        self._wake.set()

    def resume(self, reader: PartitionReader) -> None:
        if reader.feed.is_paused:
            reader.feed.resume()
            self._begin_anew()
            self._changed()

    # Fetched chunks.

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the chunks that were fetched and not returned."""
        return sum(chunk.held_bytes for chunk in self._chunks)

    @property
    def is_polling(self) -> bool:
        """True while a long poll is in flight."""
        return bool(self._rounds)

    @property
    def trouble(self) -> PartitionFeed | None:
        """The feed that has been failing for the longest time; None if no feed fails."""
        return self._feeds.trouble

    @property
    def missing(self) -> MillstreamError | None:
        """The error of a missing topic that prevents reading; None if all topics exist, or others are read."""
        return self._feeds.missing

    @property
    def missing_topics(self) -> list[str]:
        """The topics that should be read and do not exist."""
        return self._feeds.missing_topics

    def take_failure(self) -> MillstreamError | None:
        """Return and clear the failure of a feed that gave up; fetching then continues."""
        failure = self._feeds.take_failure()
        if failure is not None:
            self._wake.set()
        return failure

    def next_chunk(self) -> FetchedChunk | None:
        """Return the oldest chunk of a partition that is not paused; None if there is none or it is being unpacked."""
        for at, chunk in enumerate(self._chunks):
            if not chunk.feed.is_paused:
                if chunk.is_packed:
                    self._unpacking.begin(chunk, self.piece_bytes)
                    return None
                del self._chunks[at]
                waiting = (each for each in self._chunks if each.is_packed and not each.feed.is_paused)
                following = next(waiting, None)
                if following is not None:
                    self._unpacking.begin(following, self.piece_bytes)
                self._wake.set()
                return chunk
        return None

    def _unpacked(self, chunk: FetchedChunk, pieces: Sequence[FetchedChunk]) -> None:
        if chunk in self._chunks:
            at = self._chunks.index(chunk)
            self._chunks.remove(chunk)
            if chunk.place is not None and pieces[0] is chunk:
                self._ask_again(chunk)
            else:
                for piece in reversed(pieces):
                    self._chunks.insert(at, piece)
        self._changed()

    def put_back(self, chunks: Sequence[FetchedChunk]) -> None:
        """Put these chunks, in order, back at the front of the queue."""
        for chunk in reversed(chunks):
            if self._reader_of(chunk) is not None:
                self._chunks.appendleft(chunk)

    def refetch(self, chunk: FetchedChunk, error: MillstreamError) -> None:
        """Fetch a damaged chunk again; after several failed attempts the feed gives up with the error."""
        reader = self._reader_of(chunk)
        if reader is not None:
            self._ask_again(chunk)
            if not isinstance(error, FileMovedError):
                self._failed([reader], MillstreamError(error.code, f"{chunk.where}: {error.detail}"))

    def _ask_again(self, chunk: FetchedChunk) -> None:
        """Discard this chunk and its successors in the partition, and fetch them again."""
        if self._reader_of(chunk) is not None:
            feed = chunk.feed
            self._chunks = deque(each for each in self._chunks if each.feed is not feed or each.offset < chunk.offset)
            feed.seek(chunk.offset)
            self._begin_anew()

    def _reader_of(self, chunk: FetchedChunk) -> PartitionReader | None:
        """Return the reader that the chunk was fetched for; None if it was released."""
        reader = self.readers.get(chunk.where)
        return reader if reader is not None and reader.feed is chunk.feed else None

    # Prefetching.

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._feeds.failure is None:
                try:
                    await self._advance()
                except Exception as error:
                    self._feeds.give_up(client_failed(log, "reading ahead", error))
                    self._changed()
            try:
                async with asyncio.timeout_at(self._feeds.due_s if self._feeds.failure is None else None):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _advance(self) -> None:
        """Process answered polls, look up leaders, and start the polls that are due."""
        for address, each in list(self._rounds.items()):
            if each.task.done():
                del self._rounds[address]
                await self._take_in(each, self._nearby[address])
        self._feeds.look()
        if await self._feeds.find_leaders():
            self._changed()
        self._join_polls()
        self._begin_rounds()

    def _join_polls(self) -> None:
        """Cancel polls whose leader has a further partition that became ready, so that the next poll includes it."""
        for feed in self._feeds.ready_again():
            under_way = None if feed.leader is None else self._rounds.get(feed.leader)
            reader = self.readers[feed.where]
            if under_way is not None and reader.wants_more and under_way.readers.get(feed.where) is not reader:
                self._give_up_round(under_way)
                del self._rounds[under_way.leader]

    def _begin_rounds(self) -> None:
        """Start a poll at each leader that has none in flight.

        A leader whose share of the prefetch buffer has no room for the response gets no poll.
        """
        feeds = self._feeds
        if feeds.failure is not None or feeds.missing is not None:
            return
        wanting: dict[Address, list[PartitionReader]] = {}
        for reader in self.readers.values():
            leader = reader.feed.leader
            if leader is not None:
                wanting.setdefault(leader, [])
                if reader.wants_more and leader not in self._rounds and feeds.is_ready(reader.feed):
                    wanting[leader].append(reader)
        if not wanting:
            return
        share_bytes = self._rules.prefetch_bytes // len(wanting)
        poll_bytes = max(POLL_BYTES_MIN, min(POLL_BYTES_MAX, share_bytes // 2))
        held: dict[Address | None, int] = {}
        for chunk in self._chunks:
            leader = chunk.feed.leader
            held[leader] = held.get(leader, 0) + chunk.held_bytes
        for address, readers in wanting.items():
            if readers and held.get(address, 0) <= max(0, share_bytes - poll_bytes):
                self._begin_round(address, readers, poll_bytes)

    def _begin_round(self, address: Address, readers: list[PartitionReader], poll_bytes: int) -> None:
        assert address not in self._rounds, "a leader has at most one poll in flight"
        positions = {reader.feed.where: reader.feed.position for reader in readers}
        ids = {reader.feed.where.topic: reader.feed.topic_id for reader in readers}
        task = asyncio.create_task(self._poll(address, positions, ids, poll_bytes), name=f"poll of {address}")
        task.add_done_callback(lambda _: self._wake.set())
        self._rounds[address] = _Round(address, {reader.feed.where: reader for reader in readers}, positions, task)

    async def _poll(
        self,
        address: Address,
        positions: Mapping[TopicPartition, FeedPosition],
        topic_ids: dict[str, TopicId],
        poll_bytes: int,
    ) -> Found:
        wait_s = POLL_WAIT_MS / 1000
        deadline = Deadline(wait_s + LOOK_UP_S)
        # A limit per partition lets several partitions share one answer.
        partition_bytes = max(POLL_BYTES_MIN, poll_bytes // min(len(positions), 4))
        async with self._cluster.polling(address, deadline) as connection:
            machine = self._nearby[address].machine(connection)
            poll = Poll(positions, topic_ids, poll_bytes, partition_bytes, POLL_WAIT_MS, machine)
            return await self._sessions[address].poll(poll, connection, self._cluster.timeout_s(deadline, wait_s))

    async def _take_in(self, done: _Round, nearby: LocalFileReader) -> None:
        try:
            answer = done.task.result()
        except MillstreamError as error:
            self._failed([each for where, each in done.readers.items() if self.readers.get(where) is each], error)
            return
        self._feeds.answered(done.readers, {where for where in answer if isinstance(answer[where], MillstreamError)})
        for where, found in answer.items():
            reader = done.readers[where]
            if self.readers.get(where) is not reader or reader.feed.offset != done.positions[where].offset:
                continue  # Released or moved by a seek while the poll was in flight.
            if not isinstance(found, MillstreamError):
                self._keep(reader, found, nearby)
            elif found.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._find_range(reader)
            else:
                self._failed([reader], found)
        self._changed()

    def _keep(self, reader: PartitionReader, fetched: FetchedBatches, nearby: LocalFileReader) -> None:
        feed = reader.feed
        reader.high_watermark = fetched.high_watermark
        if not len(fetched.batches) and fetched.place is None:
            feed.decoded()
            return
        stop = reader.stop_offset
        if fetched.place is None:
            chunks = list(FetchedChunk.each(feed, fetched, self.piece_bytes, stop))
        else:
            is_packed = not self._rules.caller_reads
            chunks = [FetchedChunk.unread(feed, fetched, nearby, is_packed=is_packed, stop_offset=stop)]
        feed.advance(chunks[-1].next_offset)
        self._chunks += chunks
        # The broker fills its answer from the first partition on, so one that got data moves to the end.
        self.readers[feed.where] = self.readers.pop(feed.where)

    async def _find_range(self, reader: PartitionReader) -> None:
        """Handle an offset out of range: removed by retention or a truncation, or not written yet."""
        feed = reader.feed
        missing_offset = feed.offset
        if await self._feeds.find_range(feed) is RangeOutcome.MOVED:
            fields = {**feed.where._asdict(), "offset": missing_offset, "next_offset": feed.offset}
            log.warning(LogEvent("offset out of range, continuing at the nearest", **fields))
            self._forget_chunks(feed)
            reader.move(feed.offset)

    def _failed(self, readers: Sequence[PartitionReader], error: MillstreamError) -> None:
        """Report a failure to the feeds, which back off and look up their leader again, or give up."""
        self._feeds.failed([reader.feed for reader in readers], error)
        self._wake.set()
        self._changed()

    def _forget_chunks(self, feed: PartitionFeed) -> None:
        self._chunks = deque(chunk for chunk in self._chunks if chunk.feed is not feed)

    def _begin_anew(self) -> None:
        """Cancel all polls and start them again, because the positions or partitions have changed."""
        self._give_up_rounds()
        self._wake.set()

    def _give_up_rounds(self) -> None:
        for each in self._rounds.values():
            self._give_up_round(each)
        self._rounds.clear()

    def _give_up_round(self, given_up: _Round) -> None:
        if not given_up.task.cancel() and not given_up.task.cancelled():
            given_up.task.exception()  # Keeps asyncio from logging the exception. The data is fetched again if needed.
