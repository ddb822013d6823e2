"""Fetch sessions: what a reader asked for is remembered, so that its next request names only what changes.

As in Kafka: a session has an epoch that each request must name (1 after the one that made it, then one more each
time), an answer to a session tells only of partitions that have something new, and partitions that gave data go to the
end, so that all get their turn when answers are full. Bounded: the session longest unused makes room for a new one
once it has been unused for a while; when none has, the reader goes on without a session, which costs only bytes.
"""

from collections import OrderedDict
from collections.abc import Iterable

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.clock import Clock
from millstream.seams.entropy import Entropy
from millstream.wire.fetch import FetchedPartition, FetchPartition, FetchRequest
from millstream.wire.topic_ref import TopicRef

SESSIONS_MAX = 1_000
PARTITIONS_MAX = 200_000
"""Partitions that all sessions together may remember."""

UNUSED_S = 120.0
NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1

PartitionRef = tuple[TopicRef, int]
Told = tuple[int, int, int]
"""Error, high watermark and log start as last told: what must be told again when it changes."""


class BrokerFetchSession:
    """What one reader wants, in the order in which it is served."""

    __slots__ = ("_told", "epoch", "id", "used_at", "uses_ids", "wants")

    def __init__(self, session_id: int, uses_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_ids = uses_ids
        self.used_at = now
        self.wants: OrderedDict[PartitionRef, FetchPartition] = OrderedDict()
        self._told: dict[PartitionRef, Told] = {}

    def update(self, request: FetchRequest) -> None:
        """Take over what the request adds, changes and forgets."""
        for topic, partitions in request.topics:
            for want in partitions:
                self.wants[topic, want.partition] = want
        for topic, numbers in request.forgotten:
            for number in numbers:
                self.wants.pop((topic, number), None)
                self._told.pop((topic, number), None)

    def news(
        self, fetched: Iterable[tuple[TopicRef, FetchedPartition]], *, everything: bool
    ) -> list[tuple[TopicRef, FetchedPartition]]:
        """Of what was fetched, what the reader does not know; those that gave data go to the end."""
        news = []
        for topic, each in fetched:
            ref = topic, each.partition
            now = each.error, each.high_watermark, each.log_start_offset
            if everything or each.records or each.error or self._told.get(ref) != now:
                news.append((topic, each))
                # An error is told every time, until it is over.
                if each.error:
                    self._told.pop(ref, None)
                else:
                    self._told[ref] = now
            if each.records and ref in self.wants:
                self.wants.move_to_end(ref)
        return news


class FetchSessions:
    def __init__(
        self, clock: Clock, entropy: Entropy, *, sessions_max: int = SESSIONS_MAX, partitions_max: int = PARTITIONS_MAX
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: OrderedDict[int, BrokerFetchSession] = OrderedDict()
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, uses_ids: bool) -> BrokerFetchSession | None:
        """A new session for a request that asks for one; None when there is no room. The old one ends."""
        self.end(request.session_id)
        now = self._clock.monotonic_s()
        size = sum(len(partitions) for _, partitions in request.topics)
        if not size or not self._make_room(size, now):
            return None
        session = BrokerFetchSession(self._new_id(), uses_ids, now)
        session.update(request)
        self._sessions[session.id] = session
        self._partitions += len(session.wants)
        return session

    def go_on(self, request: FetchRequest, uses_ids: bool) -> BrokerFetchSession | None:
        """The session that a request continues, brought up to date; None when nothing is left in it.

        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR when it cannot go on.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise MillstreamError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise MillstreamError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.uses_ids != uses_ids:
            raise MillstreamError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._partitions -= len(session.wants)
        session.update(request)
        self._partitions += len(session.wants)
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        session.used_at = self._clock.monotonic_s()
        self._sessions.move_to_end(session.id)
        if not session.wants or self._partitions > self._partitions_max:
            self.end(session.id)
        return session if session.wants else None

    def end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.wants)

    def _make_room(self, size: int, now: float) -> bool:
        if size > self._partitions_max:
            return False
        while len(self._sessions) >= self._sessions_max or self._partitions + size > self._partitions_max:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < UNUSED_S:
                return False
            self.end(oldest.id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._entropy.token(4)) & _EPOCH_MAX
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id
