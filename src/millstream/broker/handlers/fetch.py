"""Fetch: what is there now, or what comes within the time that the reader will wait.

What the page cache has is answered at once. Where nothing is there yet a `_Poll` waits, which costs a few callbacks
until there is news. Only what goes on by and by (data on disk, more partitions than one slice) becomes a task. A
position beyond the end of its log is waited for in the same way; only when the wait is over and it has not been reached
is it out of range.
"""

import asyncio
from collections.abc import Callable, Sequence

from millstream.broker.dispatch.capabilities import PartitionLookup
from millstream.broker.dispatch.request import Answer, BrokerRequest, DeferredResponse, Result, Work
from millstream.broker.fetch_pass import SLICE, FetchPass, Want
from millstream.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, BrokerFetchSession, FetchSessions
from millstream.broker.net.memory_limits import HUNGRY_S, MemoryLimits
from millstream.model.errors import MillstreamError
from millstream.model.waiters import Cancel
from millstream.wire.fetch import (
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchRequest,
    parse_fetch_request,
    write_fetch_response,
)
from millstream.wire.topic_ref import TopicRef

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Largest answer, whatever the reader would take: more would only make others wait longer."""

WAIT_S_MAX = 300.0
_READ_COMMITTED = 1


class FetchHandler:
    def __init__(
        self, partitions: PartitionLookup, sessions: FetchSessions, memory: MemoryLimits, machine: str = ""
    ) -> None:
        self._partitions = partitions
        self._sessions = sessions
        self._memory = memory
        self._machine = machine

    def __call__(self, request: BrokerRequest) -> Result:
        fetch = parse_fetch_request(request.version, request.frame, request.body)
        try:
            session, everything = self._session(fetch, request.version >= TOPIC_IDS_FROM)
        except MillstreamError as error:
            return write_fetch_response(request.version, (), error=error.code.number)
        if session is None:
            wants: Sequence[Want] = [(topic, want) for topic, partitions in fetch.topics for want in partitions]
        else:
            wants = [(topic, want) for (topic, _), want in session.wants.items()]
        poll = _Poll(self, request.version, fetch, session, everything, wants)
        return poll.answer_now() or poll.begin()

    def _session(self, fetch: FetchRequest, uses_ids: bool) -> tuple[BrokerFetchSession | None, bool]:
        """The session of a request, if it has one, and whether the answer is to tell of every partition."""
        if fetch.session_epoch == FINAL_EPOCH:
            self._sessions.end(fetch.session_id)
            return None, True
        if fetch.session_epoch == INITIAL_EPOCH:
            return self._sessions.begin(fetch, uses_ids), True
        return self._sessions.go_on(fetch, uses_ids), False

    def read(self, fetch: FetchRequest, wants: Sequence[Want]) -> FetchPass:
        """Begin to read, within what the reader, the broker's memory and everybody's patience allow."""
        limit = self._memory.answer_bytes_max(min(max(fetch.max_bytes, 1), ANSWER_BYTES_MAX))
        committed = fetch.isolation_level == _READ_COMMITTED
        reading = FetchPass(self._partitions, wants, limit, committed=committed, near=self.is_near(fetch))
        reading.run()
        return reading

    def is_near(self, fetch: FetchRequest) -> bool:
        """Whether the reader is on this machine, and takes places of files for what is in them."""
        return fetch.machine != "" and fetch.machine == self._machine

    def wait(self, read: Sequence[tuple[Want, FetchedPartition]], wake: Callable[[], None]) -> list[Cancel]:
        """Call `wake`, perhaps at once, as soon as any of the partitions has more than it had when it was read, or is
        gone."""
        cancels = []
        for (topic, want), fetched in read:
            number = want.partition
            if isinstance(topic, str):
                partition = self._partitions.get(topic, number)
            else:
                partition = self._partitions.get_by_id(topic, number)
            if partition is None:
                wake()
            else:
                # Behind what was there already: with less than the reader wants, only more of it is news.
                cancels.append(partition.wait(max(want.offset, fetched.high_watermark), wake))
        return cancels


class _Poll:
    """One fetch request that may have to wait.

    Invariant: from `begin` until it is answered, it is registered with its partitions, or `_look` is called soon, or
    `_run` goes on as a task.
    """

    def __init__(
        self,
        handler: FetchHandler,
        version: int,
        fetch: FetchRequest,
        session: BrokerFetchSession | None,
        everything: bool,
        wants: Sequence[Want],
    ) -> None:
        self._handler = handler
        self._version = version
        self._fetch = fetch
        self._session = session
        self._everything = everything
        self._wants = wants
        self._reading = handler.read(fetch, wants)
        self._is_over = fetch.max_wait_ms <= 0 or not wants

    def answer_now(self) -> Answer | None:
        """The answer, if it need not wait for anything."""
        reading = self._reading
        if reading.is_finished and (self._is_over or self._is_enough(reading)):
            return self._answer(reading)
        return None

    def begin(self) -> DeferredResponse | Work:
        """Wait for what is missing."""
        self._is_woken = False
        self._wake: Callable[[], None] = self._look_soon
        self._cancels: list[Cancel] = []
        wait_s = min(self._fetch.max_wait_ms / 1000, WAIT_S_MAX)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self.hurry)
        if not self._reading.is_finished or len(self._wants) > SLICE:
            return self._work()
        self._later = DeferredResponse(self.hurry)
        self._wait()
        return self._later

    def hurry(self) -> None:
        """The time is over, or nobody waits any longer: answer with what is there."""
        self._is_over = True
        self._wake()

    def _look_soon(self) -> None:
        """There is news. It is looked at a moment later: whoever brings it has something else to finish."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._is_woken = False
        self._forget()
        try:
            self._reading = self._handler.read(self._fetch, self._wants)
        except Exception as error:
            self._timer.cancel()
            self._later.become(Work(_fail(error)))
            return
        answer = self.answer_now()
        if answer is not None:
            self._timer.cancel()
            self._wake = _nothing  # What it was holds all that was read.
            self._later.finish(answer)
        elif self._reading.is_finished:
            self._wait()
        else:
            self._later.become(self._work())

    def _wait(self) -> None:
        self._cancels = self._handler.wait(self._read(), self._wake)
        self._look_for_memory()

    def _look_for_memory(self) -> None:
        """Where there is no memory for what is there, no partition has news: look again in a moment."""
        if self._reading.is_hungry:
            self._cancels.append(asyncio.get_running_loop().call_later(HUNGRY_S, self._wake).cancel)

    def _work(self) -> Work:
        self._wake = _nothing
        return Work(self._run(), self.hurry)

    async def _run(self) -> Answer:
        """Read and wait, in slices, until there is enough or the time is over."""
        try:
            while True:
                await self._finish_reading()
                answer = self.answer_now()
                if answer is not None:
                    return answer
                await self._wait_for_more()
                self._reading = self._handler.read(self._fetch, self._wants)
        finally:
            self._timer.cancel()

    async def _finish_reading(self) -> None:
        reading = self._reading
        while not reading.is_finished:
            await reading.run_cold()
            await asyncio.sleep(0)
            reading.run()

    async def _wait_for_more(self) -> None:
        news = asyncio.Event()
        self._wake = news.set
        try:
            read = self._read()
            for start in range(0, len(read), SLICE):
                if start:
                    await asyncio.sleep(0)
                self._cancels += self._handler.wait(read[start : start + SLICE], news.set)
            self._look_for_memory()
            if not self._is_over:
                await news.wait()
        finally:
            self._forget()

    def _read(self) -> list[tuple[Want, FetchedPartition]]:
        return [(want, fetched) for want, (_, fetched) in zip(self._wants, self._reading.fetched, strict=True)]

    def _forget(self) -> None:
        for cancel in self._cancels:
            cancel()
        self._cancels = []

    def _is_enough(self, reading: FetchPass) -> bool:
        return reading.has_error or reading.size_bytes >= max(self._fetch.min_bytes, 1)

    def _answer(self, reading: FetchPass) -> Answer:
        fetched: Sequence[tuple[TopicRef, FetchedPartition]] = reading.fetched
        session_id = NO_SESSION
        if self._session is not None:
            fetched = self._session.news(fetched, everything=self._everything)
            session_id = self._session.id
        if self._handler.is_near(self._fetch):
            fetched = [(topic, _placed(each)) for topic, each in fetched]
        return write_fetch_response(self._version, _by_topic(fetched), session_id=session_id)


def _placed(fetched: FetchedPartition) -> FetchedPartition:
    """Without the records, where their place is told."""
    return fetched if fetched.place is None else fetched._replace(records=b"")


async def _fail(error: Exception) -> Answer:
    """Fail where unexpected failures of requests are dealt with."""
    raise error


def _nothing() -> None:
    """What there is to do for somebody who will look anyway."""


def _by_topic(fetched: Sequence[tuple[TopicRef, FetchedPartition]]) -> list[tuple[TopicRef, list[FetchedPartition]]]:
    """Partitions in their order, with neighbours of the same topic together."""
    topics: list[tuple[TopicRef, list[FetchedPartition]]] = []
    for topic, each in fetched:
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(each)
    return topics
