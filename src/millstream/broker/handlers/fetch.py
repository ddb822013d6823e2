"""Fetch: returns the available records, or waits for records until the reader's maximum wait time.

An offset after the log end waits like the log end itself. It is out of range only if the log has not reached it when
the wait time expires.
"""

from collections.abc import Iterable, Sequence

from millstream.broker.dispatch.capabilities import PartitionLookup
from millstream.broker.dispatch.open_changes import Targets
from millstream.broker.dispatch.request import Answer, BrokerRequest, Result
from millstream.broker.dispatch.request_targets import named_partitions
from millstream.broker.fetch_pass import FetchPass, Want
from millstream.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, BrokerFetchSession, FetchSessions
from millstream.broker.long_poll import ANSWER_BYTES_MAX, poll
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.model.errors import MillstreamError
from millstream.wire.fetch import (
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchRequest,
    parse_fetch_request,
    write_fetch_response,
)
from millstream.wire.topic_ref import TopicRef


class FetchHandler:
    def __init__(
        self, partitions: PartitionLookup, sessions: FetchSessions, memory: MemoryLimits, machine: str = ""
    ) -> None:
        """`machine` identifies the broker's machine. A reader on the same machine gets file positions, not records."""
        self.partitions = partitions
        self.memory = memory
        self.machine = machine
        self._sessions = sessions

    def __call__(self, request: BrokerRequest) -> Result:
        fetch = parse_fetch_request(request.version, request.frame, request.body)
        try:
            session, everything = self._session(fetch, request.version >= TOPIC_IDS_FROM)
        except MillstreamError as error:
            return write_fetch_response(request.version, (), error=error.code.number)
        return poll(_Fetch(self, request, fetch, session, everything), fetch.max_wait_ms)

    def targets(self, request: BrokerRequest) -> Targets:
        """Return the partitions that a request reads: those that it names, and those of its session."""
        fetch = parse_fetch_request(request.version, request.frame, request.body)
        named = [(topic, want.partition) for topic, wants in fetch.topics for want in wants]
        kept = self._sessions.partitions_of(fetch.session_id)
        return set(named_partitions(self.partitions.image, [*named, *kept]))

    def _session(self, fetch: FetchRequest, uses_ids: bool) -> tuple[BrokerFetchSession | None, bool]:
        """Return the session of a request, if any, and whether the response must contain every partition."""
        if fetch.session_epoch == FINAL_EPOCH:
            self._sessions.end(fetch.session_id)
            return None, True
        if fetch.session_epoch == INITIAL_EPOCH:
            return self._sessions.begin(fetch, uses_ids), True
        return self._sessions.go_on(fetch, uses_ids), False


class _Fetch:
    """One fetch request. It reads the partitions of its session, or without a session those it names."""

    __slots__ = ("_access", "_everything", "_fetch", "_handler", "_session", "_version", "_wants")

    def __init__(
        self,
        handler: FetchHandler,
        request: BrokerRequest,
        fetch: FetchRequest,
        session: BrokerFetchSession | None,
        everything: bool,
    ) -> None:
        self._handler = handler
        self._version = request.version
        self._access = request.access
        self._fetch = fetch
        self._session = session
        self._everything = everything
        if session is None:
            self._wants: Sequence[Want] = [(topic, want) for topic, wants in fetch.topics for want in wants]
        else:
            self._wants = [(topic, want) for (topic, _), want in session.wants.items()]

    def read(self) -> FetchPass:
        handler, fetch = self._handler, self._fetch
        budget = handler.memory.answer_bytes_max(min(max(fetch.max_bytes, 1), ANSWER_BYTES_MAX))
        is_near = fetch.machine != "" and fetch.machine == handler.machine
        reading = FetchPass(handler.partitions, self._wants, fetch, self._access, budget, is_near)
        reading.run()
        return reading

    def answer(self, done: FetchPass) -> Answer:
        done.answered()
        session = self._session
        if session is None:
            fetched, session_id = _in_request_order(self._fetch, done), NO_SESSION
        else:
            fetched, session_id = _by_topic(session.news(done.rows(), everything=self._everything)), session.id
        return write_fetch_response(self._version, fetched, session_id=session_id, leaders=done.leaders())


Topics = list[tuple[TopicRef, list[FetchedPartition]]]


def _in_request_order(fetch: FetchRequest, done: FetchPass) -> Topics:
    """Return all partitions in the order of the request."""
    topics: Topics = []
    at = 0
    for topic, wants in fetch.topics:
        fetched = done.fetched[at : at + len(wants)]
        at += len(wants)
        if topics and topics[-1][0] == topic:
            topics[-1][1].extend(fetched)
        elif fetched:
            topics.append((topic, fetched))
    return topics


def _by_topic(fetched: Iterable[tuple[TopicRef, FetchedPartition]]) -> Topics:
    """Group consecutive partitions of the same topic. The order stays the same."""
    topics: Topics = []
    for topic, each in fetched:
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(each)
    return topics
