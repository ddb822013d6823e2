"""Implements the state machine of a group member (KIP-848): its epoch, its owned partitions and its heartbeats.

Pure: no I/O. The coordinator sets the target assignment. The member reconciles what it owns, and reports that in its
heartbeats. Invariants:

- Epoch 0 means that the member is not in the group; it then owns no partitions.
- `owned` changes only by `own` (the reader has reconciled) and by `lose` (the group has removed the member).
- A reported assignment counts as known to the coordinator only after its answer. After any failure the next heartbeat
  reports everything again.
- `lives` counts how often the member lost all partitions. A partition from an earlier life is not owned any more.
"""

from enum import Enum

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.sdk.admin.group_results import HeartbeatRequest, HeartbeatResponse, MemberRef

Share = frozenset[tuple[TopicId, int]]

NOTHING: Share = frozenset()
JOINS = 0
LEAVES = -1
LEAVES_FOR_A_WHILE = -2

OUTSIDE = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
"""Error codes that mean that the group has removed the member, or does not exist any more."""


class Consequence(Enum):
    """The reaction to a failed heartbeat."""

    TRY_AGAIN = "retry after a backoff"
    JOIN_AGAIN = "all partitions are lost; join the group again"
    GIVE_UP = "a retry would fail too"


class MemberCore:
    def __init__(
        self,
        group_id: str,
        member_id: str,
        topics: tuple[str, ...],
        *,
        rebalance_timeout_ms: int,
        instance_id: str | None = None,
        assignor: str | None = None,
        topic_regex: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = JOINS
        self.interval_ms = 0
        self.owned = NOTHING
        self.target = NOTHING
        self.lives = 0
        self._topics = topics
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._instance_id = instance_id
        self._assignor = assignor
        self._topic_regex = topic_regex
        self._reporting: Share | None = None
        """The owned partitions in the heartbeat that is in flight."""
        self._reported: Share | None = None
        """The owned partitions that the coordinator knows; None if it must get a complete heartbeat."""

    @property
    def ref(self) -> MemberRef:
        """The member id and epoch for offset fetches and commits."""
        return MemberRef(self.member_id, self.epoch, self._instance_id)

    @property
    def is_settled(self) -> bool:
        """True if the member owns its target assignment and has reported that."""
        return self.owned == self.target and self._reported == self.owned

    def beat(self) -> HeartbeatRequest:
        """Build the next heartbeat: complete at first and after a failure, otherwise only changes."""
        self._reporting = self.owned
        owned = tuple(sorted(self.owned)) if self._reported != self.owned else None
        if self._reported is not None:
            return HeartbeatRequest(self.group_id, self.member_id, self.epoch, self._instance_id, owned=owned)
        return HeartbeatRequest(
            self.group_id,
            self.member_id,
            self.epoch,
            self._instance_id,
            self._rebalance_timeout_ms,
            self._topics,
            self._assignor,
            owned,
            self._topic_regex,
        )

    def leave(self) -> HeartbeatRequest:
        """Build the last heartbeat, which leaves the group. A static member stays registered for its return."""
        self.lose()
        epoch = LEAVES if self._instance_id is None else LEAVES_FOR_A_WHILE
        return HeartbeatRequest(self.group_id, self.member_id, epoch, self._instance_id)

    def answered(self, answer: HeartbeatResponse) -> None:
        """Apply the coordinator's answer to the last heartbeat."""
        self.epoch = answer.epoch
        self.interval_ms = answer.interval_ms
        self._reported = self._reporting
        if answer.assigned is not None:
            self.target = answer.assigned

    def failed(self, error: MillstreamError) -> Consequence:
        """Apply the failure of the last heartbeat: it was refused, or its outcome is unknown."""
        if error.code in OUTSIDE and (self.epoch > 0 or error.code is not ErrorCode.GROUP_ID_NOT_FOUND):
            self.lose()
            return Consequence.JOIN_AGAIN
        self._reported = None
        return Consequence.TRY_AGAIN if error.code.retriable else Consequence.GIVE_UP

    def own(self, share: Share) -> None:
        """Set the owned partitions after the reader has reconciled."""
        assert self.epoch > 0 or not share, "a member outside of the group owns no partitions"
        self.owned = share

    def lose(self) -> None:
        """Drop the epoch and all partitions: the member is not in the group any more."""
        self.epoch = JOINS
        self.owned = self.target = NOTHING
        self._reported = self._reporting = None
        self.lives += 1
