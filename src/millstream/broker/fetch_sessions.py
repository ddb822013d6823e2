"""Keeps fetch sessions, so that a reader's next request names only the partitions that change.

Sessions work as in Kafka. Each request must name the session's epoch: 1 after the request that created it, then one
more each time. A response contains only partitions that have something new. A partition that returned data moves to
the end of the order, so that every partition gets its turn when responses are full.

The number of sessions is bounded. A new session replaces the least recently used one, if that was unused for
`UNUSED_S`. Otherwise the reader continues without a session, and its requests are larger.
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
"""Maximum number of partitions in all sessions together."""

UNUSED_S = 120.0
NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1

PartitionRef = tuple[TopicRef, int]
ReportedState = tuple[int, int, int]
"""Error, high watermark and log start offset of the last response. A response repeats them only if they change."""


class BrokerFetchSession:
    """The partitions that one reader fetches, in the order in which they are served."""

    __slots__ = ("_reported", "epoch", "id", "used_at", "uses_ids", "wants")

    def __init__(self, session_id: int, uses_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_ids = uses_ids
        self.used_at = now
        self.wants: OrderedDict[PartitionRef, FetchPartition] = OrderedDict()
        self._reported: dict[PartitionRef, ReportedState] = {}

    def update(self, request: FetchRequest) -> None:
        """Apply the partitions that the request adds, changes and removes."""
        for topic, partitions in request.topics:
            for want in partitions:
                self.wants[topic, want.partition] = want
        for topic, numbers in request.forgotten:
            for number in numbers:
                self.wants.pop((topic, number), None)
                self._reported.pop((topic, number), None)

    def news(
        self, fetched: Iterable[tuple[TopicRef, FetchedPartition]], *, everything: bool
    ) -> list[tuple[TopicRef, FetchedPartition]]:
        """Return the fetched partitions that have changed, or all of them if `everything` is set.

        Partitions that returned data move to the end of the order.
        """
        news = []
        for topic, each in fetched:
            ref = topic, each.partition
            now = each.error, each.high_watermark, each.log_start_offset
            has_records = each.records or each.place is not None
            if everything or has_records or each.error or self._reported.get(ref) != now:
                news.append((topic, each))
                # An error is repeated in every response until it is gone.
                if each.error:
                    self._reported.pop(ref, None)
                else:
                    self._reported[ref] = now
            if has_records and ref in self.wants:
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
        """Create the session that a request asks for and end its old one. Returns None if there is no room."""
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
        """Return the session that a request continues, with the request applied.

        Returns None if the session has no partition left.

        Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR if the request
        does not match a session.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise MillstreamError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {request.session_id} does not exist"
            )
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

    def partitions_of(self, session_id: int) -> Iterable[PartitionRef]:
        """Return the partitions of a session; none if it does not exist."""
        session = self._sessions.get(session_id)
        return session.wants if session is not None else ()

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
