"""A member of a group in the newer protocol (KIP-848), without I/O: what it tells, what it is told, what it owns.

The coordinator decides who reads what; the member follows, and says when it has. Invariants:

- Epoch 0 means that the member is not in the group, and then it owns nothing.
- `owned` changes only by `own` (the reader has followed) and by `lose` (the group has moved on without it).
- What the coordinator was told last is only taken for known once it has answered; after any failure all is told again.
- `lives` counts how often everything was lost: whoever holds something from an earlier life holds nothing.
"""

from enum import Enum
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.admin.group_results import HeartbeatRequest, HeartbeatResponse, MemberRef

Share = frozenset[tuple[UUID, int]]

NOTHING: Share = frozenset()
JOINS = 0
LEAVES = -1
LEAVES_FOR_A_WHILE = -2

OUTSIDE = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
"""Refusals that tell a member that the group has gone on without it, or is gone."""


class Consequence(Enum):
    """What a failed heartbeat means."""

    TRY_AGAIN = "the same once more, a little later"
    JOIN_AGAIN = "everything is lost; begin anew"
    GIVE_UP = "it would fail again"


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
        self._telling: Share | None = None
        self._told: Share | None = None

    @property
    def ref(self) -> MemberRef:
        """In whose name offsets are fetched and committed."""
        return MemberRef(self.member_id, self.epoch, self._instance_id)

    @property
    def is_settled(self) -> bool:
        """Whether the member owns what it is to own, and has said so."""
        return self.owned == self.target and self._told == self.owned

    def beat(self) -> HeartbeatRequest:
        """The next heartbeat: everything at first and after a failure, then only what has changed."""
        self._telling = self.owned
        owned = tuple(sorted(self.owned)) if self._told != self.owned else None
        if self._told is not None:
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
        )

    def leave(self) -> HeartbeatRequest:
        """The last heartbeat. A static member keeps its place for when it comes back."""
        self.lose()
        epoch = LEAVES if self._instance_id is None else LEAVES_FOR_A_WHILE
        return HeartbeatRequest(self.group_id, self.member_id, epoch, self._instance_id)

    def answered(self, answer: HeartbeatResponse) -> None:
        """The coordinator's answer to the last heartbeat."""
        self.epoch = answer.epoch
        self.interval_ms = answer.interval_ms
        self._told = self._telling
        if answer.assigned is not None:
            self.target = answer.assigned

    def failed(self, error: MillstreamError) -> Consequence:
        """The last heartbeat was refused, or nobody knows what became of it."""
        if error.code in OUTSIDE and (self.epoch > 0 or error.code is not ErrorCode.GROUP_ID_NOT_FOUND):
            self.lose()
            return Consequence.JOIN_AGAIN
        self._told = None
        return Consequence.TRY_AGAIN if error.code.retriable else Consequence.GIVE_UP

    def own(self, share: Share) -> None:
        """The reader has let go of what it is not to have, and holds this."""
        assert self.epoch > 0 or not share, "nobody owns anything outside of the group"
        self.owned = share

    def lose(self) -> None:
        """Outside of the group again."""
        self.epoch = JOINS
        self.owned = self.target = NOTHING
        self._told = self._telling = None
        self.lives += 1
