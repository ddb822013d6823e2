"""Holds the state of reading one partition: position, topic id, leader, leader epoch and retries. Pure: no I/O.

Consumers, subscriptions, iterators and reads of the client have a feed for each partition that they read. The owner
carries out the feed's next step and reports its outcome. The owner also handles the fetched records.

======================== =================================================================================
step                     meaning
======================== =================================================================================
FindLeader               look up the partition's leader, then call `led_by` or `failed`
FetchAt                  fetch at this offset from this leader with this epoch, then call `advance` or `failed`
WaitUntil                do nothing before this time
GiveUp                   report the error, then call `retry` to try again
======================== =================================================================================

Invariants:

- `offset` never decreases, except by `seek` and `out_of_range`.
- After a failure no step is due before the backoff has passed, with one exception: a leader that a refusal names with a
  newer epoch is asked at once. The epoch grows with every such step, so a failure never causes a busy loop. The backoff
  doubles with every consecutive failure, up to BACKOFF_MAX_S; an answer without an error resets it.
- The leader epoch of a topic never decreases. Metadata of a broker that lags behind names an older leader; the feed
  does not follow it, and backs off with LEADER_NOT_AVAILABLE. Metadata without topic ids or epochs is always followed.
- A topic with another id than the feed's is another topic: the feed accepts no leader from it. A feed without a topic
  id can be bound to the topic that the metadata names, once the leader has confirmed that id.
"""

from enum import Enum
from math import inf
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk.connection.address import Address, PartitionLeader
from millstream.sdk.connection.retry_policy import FEW_ATTEMPTS, backoff_s

MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
NO_EPOCH = -1


class FeedRules(NamedTuple):
    """The reactions of a feed to missing topics and to offsets that do not exist. Each kind of reader has its own."""

    missing_attempts: int | None = FEW_ATTEMPTS
    """Consecutive failures after which a missing topic is reported; None to wait for it without limit."""
    waits_beyond_end: bool = True
    """True to wait at an offset after the log end; false to treat it as out of range, like one before the start."""
    moves_on: bool = False
    """True to continue at the nearest offset when the next one does not exist any more; false to give up."""


READS_ON = FeedRules()


class FeedPosition(NamedTuple):
    """The offset of the next fetch, and the leader epoch that the fetch names (-1: none)."""

    offset: int
    leader_epoch: int


class FindLeader(NamedTuple):
    """Step: look up the leader."""


class FetchAt(NamedTuple):
    """Step: fetch the partition from its leader."""

    leader: Address
    position: FeedPosition


class WaitUntil(NamedTuple):
    """Step: do nothing before this time."""

    time_s: float


class GiveUp(NamedTuple):
    """Step: report this error, which retries did not fix or cannot fix."""

    error: MillstreamError


Step = FindLeader | FetchAt | WaitUntil | GiveUp


class LogRange(NamedTuple):
    """The log start offset and the end offset of a partition."""

    start: int
    end: int


class RangeOutcome(Enum):
    """The consequence of an offset out of range."""

    WAITS = "the offset does not exist yet"
    MOVED = "the feed continues at the nearest offset"
    FAILED = "the offset does not exist any more"


class PartitionFeed:
    """The feed of one partition. With NO_TOPIC_ID it reads any topic of the name."""

    __slots__ = (
        "_attempts",
        "_epoch_topic_id",
        "_lasting",
        "_rules",
        "error",
        "failing_since_s",
        "gives_up",
        "is_missing",
        "is_paused",
        "leader",
        "position",
        "retry_at_s",
        "topic_id",
        "where",
    )

    def __init__(
        self, where: TopicPartition, offset: int, topic_id: TopicId = NO_TOPIC_ID, rules: FeedRules = READS_ON
    ) -> None:
        self.where = where
        self.topic_id = topic_id
        self.position = FeedPosition(offset, NO_EPOCH)
        self.leader: Address | None = None
        """None until the leader is looked up, and after each failure."""
        self.error: MillstreamError | None = None
        """The last failure; None after an answer without an error."""
        self.failing_since_s = 0.0
        self.retry_at_s = 0.0
        self.gives_up = False
        """True while the error must be reported and was not yet."""
        self.is_missing = False
        """True once the topic has been missing for as many attempts as the rules allow."""
        self.is_paused = False
        self._rules = rules
        self._epoch_topic_id = topic_id
        """The id of the topic that the leader epoch belongs to."""
        self._attempts = 0
        self._lasting = 0
        """Number of failures of kinds that rarely pass, since records of the partition were last decoded."""

    def __repr__(self) -> str:
        return f"<feed of {self.where} at {self.offset}, leader {self.leader}, error {self.error}>"

    @property
    def offset(self) -> int:
        return self.position.offset

    def is_ready(self, now_s: float) -> bool:
        """True if the next step is a fetch."""
        return self.leader is not None and self.retry_at_s <= now_s and not self.gives_up and not self.is_paused

    def step(self, now_s: float) -> Step:
        """Return the next thing to do."""
        if self.gives_up:
            assert self.error is not None, "a feed gives up for a reason"
            return GiveUp(self.error)
        if self.is_paused:
            return WaitUntil(inf)
        if self.retry_at_s > now_s:
            return WaitUntil(self.retry_at_s)
        return FindLeader() if self.leader is None else FetchAt(self.leader, self.position)

    # Leader.

    def led_by(self, leader: PartitionLeader, topic_id: TopicId) -> None:
        """Set the leader from metadata.

        Raises UNKNOWN_TOPIC_OR_PARTITION if the topic was recreated, and LEADER_NOT_AVAILABLE if the feed knows a newer
        leader epoch of the same topic.
        """
        if self.topic_id not in (NO_TOPIC_ID, topic_id):
            raise recreated(self.where.topic)
        if topic_id == self._epoch_topic_id != NO_TOPIC_ID and NO_EPOCH < leader.epoch < self.position.leader_epoch:
            raise outdated(self.where, leader, self.position.leader_epoch)
        self._epoch_topic_id = topic_id
        self.leader = leader.address
        self.position = FeedPosition(self.position.offset, leader.epoch)
        self.is_missing = False

    @property
    def named_topic_id(self) -> TopicId:
        """The topic id in the metadata that named the leader; before that, the feed's own."""
        return self._epoch_topic_id

    def bind(self) -> None:
        """Read only the topic that the metadata names: the leader has accepted a request with its id."""
        assert self.topic_id in (NO_TOPIC_ID, self._epoch_topic_id), "a feed is bound to one topic"
        self.topic_id = self._epoch_topic_id

    # Outcome of a fetch.

    def advance(self, next_offset: int) -> None:
        """Move the position to this offset: everything before it was fetched."""
        offset, epoch = self.position
        assert next_offset >= offset, f"{self.where} is at {offset}, and cannot go back to {next_offset}"
        self.position = FeedPosition(next_offset, epoch)

    def served_under(self, leader_epoch: int) -> None:
        """Note the leader epoch that a delivery of the leader names. An older one changes nothing."""
        if leader_epoch > self.position.leader_epoch:
            self.position = FeedPosition(self.position.offset, leader_epoch)

    def answered(self) -> None:
        """Reset error and backoff: the leader has answered without an error."""
        self.error = None
        self.gives_up = False
        self._attempts = 0
        self.retry_at_s = 0.0

    def decoded(self) -> None:
        """Reset the count of lasting failures: the fetched records could be decoded, or there were none."""
        self._lasting = 0

    def failed(
        self, error: MillstreamError, now_s: float, chance: float = 0.5, hint: PartitionLeader | None = None
    ) -> None:
        """Apply the failure of a step: back off and look up the leader again, or give up if a retry cannot help.

        `hint` is the leader that the refusal names. `chance` (0 to 1) randomizes the backoff, so that many clients do
        not retry at once; feeds that fail together get the same value and retry together.
        """
        if self.error is None:
            self.failing_since_s = now_s
        self.error = error
        if hint is not None and hint.epoch > self.position.leader_epoch:
            self.leader = hint.address
            self.position = FeedPosition(self.position.offset, hint.epoch)
            return
        self.leader = None
        self._wait(now_s, chance)
        if not error.code.retriable or self._lasts(error.code):
            self.gives_up = True
            self.is_missing = error.code in MISSING
            if not self.is_missing:  # A missing topic is reported again after the very next failure.
                self._lasting = 0

    def _lasts(self, code: ErrorCode) -> bool:
        """Count a failure of a kind that rarely passes; True once there were too many."""
        attempts_max = self._rules.missing_attempts if code in MISSING else FEW_ATTEMPTS
        if attempts_max is None or (code not in MISSING and code is not ErrorCode.CORRUPT_MESSAGE):
            return False
        self._lasting += 1
        return self._lasting >= attempts_max

    def retry(self) -> None:
        """Retry after the backoff. The owner calls this after it has reported the error."""
        self.gives_up = False

    # Position and pausing.

    def pause(self) -> None:
        """Take no step until `resume`, except to report an error."""
        self.is_paused = True

    def resume(self) -> None:
        """Take steps again, also if the feed had given up."""
        self.is_paused = self.gives_up = False

    def seek(self, offset: int) -> None:
        """Continue at this offset, which may be lower or higher than the current one."""
        self.position = FeedPosition(offset, self.position.leader_epoch)

    def out_of_range(self, found: LogRange, now_s: float, chance: float = 0.5) -> RangeOutcome:
        """Apply OFFSET_OUT_OF_RANGE: the leader's log holds the offsets of `found`."""
        offset = self.position.offset
        nearest = max(found.start, min(offset, found.end))
        if nearest == offset or (offset > found.end and self._rules.waits_beyond_end):
            self._wait(now_s, chance)  # Not every broker delays its answer until the offset exists.
            return RangeOutcome.WAITS
        if not self._rules.moves_on:
            self.failed(gone(self.where, offset=offset, start=found.start), now_s, chance)
            return RangeOutcome.FAILED
        self.seek(nearest)
        return RangeOutcome.MOVED

    def _wait(self, now_s: float, chance: float) -> None:
        self.retry_at_s = now_s + backoff_s(self._attempts, chance)
        self._attempts += 1


def recreated(topic: str) -> MillstreamError:
    """Make the error for a topic that has another id than the one that was read."""
    text = f"topic {topic!r} was deleted and created again; offsets of the old topic are not valid in the new one"
    return MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def outdated(where: TopicPartition, leader: PartitionLeader, known_epoch: int) -> MillstreamError:
    """Make the error for metadata that names a leader with an older epoch than the known one."""
    found = f"the metadata names {leader.address} with leader epoch {leader.epoch}"
    text = f"{where}: {found}, but epoch {known_epoch} has begun; the broker that answered lags behind"
    return MillstreamError(ErrorCode.LEADER_NOT_AVAILABLE, text)


def gone(where: TopicPartition, *, offset: int, start: int) -> MillstreamError:
    """Make the error for an offset before the log start."""
    text = f"{where}: offset {offset} does not exist any more; the log now starts at offset {start}"
    return MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
