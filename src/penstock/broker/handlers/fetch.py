"""Fetch: what is there now, or what comes within the time that the reader will wait.

What the page cache has is answered at once, without a task. Everything else (data on disk, more partitions than one
slice, nothing there yet) becomes a `_Poll`, which waits without holding anybody up and wakes as soon as data can be
read. A position beyond the end of its log is waited for in the same way; only when the wait is over and it has not
been reached is it out of range.
"""

import asyncio
from collections.abc import Sequence

from penstock.broker.capabilities import PartitionLookup
from penstock.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSessions, Session
from penstock.broker.memory import Memory
from penstock.broker.reading import SLICE, Reading, Want
from penstock.broker.request import Answer, Request, Result, Work
from penstock.model.errors import PenstockError
from penstock.partition.waiters import Cancel
from penstock.wire.fetch import TOPIC_IDS_FROM, Fetched, FetchRequest, parse_fetch_request, write_fetch_response
from penstock.wire.topic_ref import TopicRef

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Largest answer, whatever the reader would take: more would only make others wait longer."""

WAIT_S_MAX = 300.0
_READ_COMMITTED = 1


class FetchHandler:
    def __init__(self, partitions: PartitionLookup, sessions: FetchSessions, memory: Memory) -> None:
        self._partitions = partitions
        self._sessions = sessions
        self._memory = memory

    def __call__(self, request: Request) -> Result:
        fetch = parse_fetch_request(request.version, request.frame, request.body)
        try:
            session, everything = self._session(fetch, request.version >= TOPIC_IDS_FROM)
        except PenstockError as error:
            return write_fetch_response(request.version, (), error=error.code.number)
        if session is None:
            wants: Sequence[Want] = [(topic, want) for topic, partitions in fetch.topics for want in partitions]
        else:
            wants = [(topic, want) for (topic, _), want in session.wants.items()]
        poll = _Poll(self, request.version, fetch, session, everything, wants)
        return poll.answer_now() or Work(poll.run(), poll.hurry)

    def _session(self, fetch: FetchRequest, uses_ids: bool) -> tuple[Session | None, bool]:
        """The session of a request, if it has one, and whether the answer is to tell of every partition."""
        if fetch.session_epoch == FINAL_EPOCH:
            self._sessions.end(fetch.session_id)
            return None, True
        if fetch.session_epoch == INITIAL_EPOCH:
            return self._sessions.begin(fetch, uses_ids), True
        return self._sessions.go_on(fetch, uses_ids), False

    def read(self, fetch: FetchRequest, wants: Sequence[Want]) -> Reading:
        """Begin to read, within what the reader, the broker's memory and everybody's patience allow."""
        limit = self._memory.answer_bytes_max(min(max(fetch.max_bytes, 1), ANSWER_BYTES_MAX))
        reading = Reading(self._partitions, wants, limit, committed=fetch.isolation_level == _READ_COMMITTED)
        reading.run()
        return reading

    def wait(self, read: Sequence[tuple[Want, Fetched]], woken: "asyncio.Future[None]", cancels: list[Cancel]) -> None:
        """Resolve `woken` as soon as any of the partitions has more than it had when it was read, or is gone."""

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        for (topic, want), fetched in read:
            number = want.partition
            if isinstance(topic, str):
                partition = self._partitions.get(topic, number)
            else:
                partition = self._partitions.get_by_id(topic, number)
            if partition is not None:
                # Behind what was there already: with less than the reader wants, only more of it is news.
                cancels.append(partition.wait(max(want.offset, fetched.high_watermark), wake))
            if woken.done():
                return


class _Poll:
    """One fetch request that may have to wait."""

    def __init__(
        self,
        handler: FetchHandler,
        version: int,
        fetch: FetchRequest,
        session: Session | None,
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
        self._woken: asyncio.Future[None] | None = None
        self._is_over = fetch.max_wait_ms <= 0 or not wants

    def answer_now(self) -> Answer | None:
        """The answer, if it need not wait for anything."""
        reading = self._reading
        if reading.is_finished and (self._is_over or self._is_enough(reading)):
            return self._answer(reading)
        return None

    async def run(self) -> Answer:
        """Read and wait until there is enough, or the time is over."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(self._fetch.max_wait_ms / 1000, WAIT_S_MAX), self.hurry)
        try:
            while True:
                await self._finish_reading()
                answer = self.answer_now()
                if answer is not None:
                    return answer
                await self._wait_for_more(loop)
                self._reading = self._handler.read(self._fetch, self._wants)
        finally:
            timer.cancel()

    def hurry(self) -> None:
        """The time is over, or nobody waits any longer: answer with what is there."""
        self._is_over = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _finish_reading(self) -> None:
        reading = self._reading
        while not reading.is_finished:
            await reading.run_cold()
            await asyncio.sleep(0)
            reading.run()

    async def _wait_for_more(self, loop: asyncio.AbstractEventLoop) -> None:
        woken = self._woken = loop.create_future()
        cancels: list[Cancel] = []
        try:
            read = [(want, fetched) for want, (_, fetched) in zip(self._wants, self._reading.fetched, strict=True)]
            for start in range(0, len(read), SLICE):
                if start:
                    await asyncio.sleep(0)
                self._handler.wait(read[start : start + SLICE], woken, cancels)
            if self._is_over and not woken.done():
                woken.set_result(None)
            await woken
        finally:
            self._woken = None
            for cancel in cancels:
                cancel()

    def _is_enough(self, reading: Reading) -> bool:
        return reading.has_error or reading.size_bytes >= max(self._fetch.min_bytes, 1)

    def _answer(self, reading: Reading) -> Answer:
        fetched: Sequence[tuple[TopicRef, Fetched]] = reading.fetched
        session_id = NO_SESSION
        if self._session is not None:
            fetched = self._session.news(fetched, everything=self._everything)
            session_id = self._session.id
        return write_fetch_response(self._version, _by_topic(fetched), session_id=session_id)


def _by_topic(fetched: Sequence[tuple[TopicRef, Fetched]]) -> list[tuple[TopicRef, list[Fetched]]]:
    """Partitions in their order, with neighbours of the same topic together."""
    topics: list[tuple[TopicRef, list[Fetched]]] = []
    for topic, each in fetched:
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(each)
    return topics
