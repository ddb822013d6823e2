"""Models the expected behaviour of a classic group as simply as possible: without timers, counters or caches.

All members have the same timeouts and one protocol. The first member of an empty group joins without a delay. The
machine assigns member ids; the test copies them into the model.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.coordination.effects import Token
from millstream.model.errors import ErrorCode

SESSION_MS = 40_009
REBALANCE_MS = 30_011
NEW_MEMBER_MS = 300_000


@dataclass(eq=False)
class ModelMember:
    member_id: str | None
    instance_id: str | None
    metadata: bytes
    deadline_ms: int | None
    join: Token | None = None
    sync: Token | None = None
    is_new: bool = False


class Told(NamedTuple):
    error: ErrorCode
    generation: int | None
    """Set if a join succeeded."""
    leader: ModelMember | None


@dataclass
class ModelGroup:
    state: str = "Empty"
    generation: int = 0
    leader: ModelMember | None = None
    members: list[ModelMember] = field(default_factory=list)
    expected: dict[str, int] = field(default_factory=dict)
    to_sync: list[ModelMember] = field(default_factory=list)
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    told: dict[Token, Told] = field(default_factory=dict)
    newcomers: dict[Token, ModelMember] = field(default_factory=dict)
    """Members whose pending join assigns their id."""
    is_stored: bool = False
    """True if the last step wrote the group."""

    # Lookups.

    def find(self, member_id: str) -> ModelMember | None:
        return next((each for each in self.members if each.member_id == member_id), None)

    def holder(self, instance_id: str) -> ModelMember | None:
        return next((each for each in self.members if each.instance_id == instance_id), None)

    def check(self, member_id: str, instance_id: str | None, generation: int | None = None) -> ErrorCode:
        if instance_id is not None and self.holder(instance_id) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if instance_id is not None and self.holder(instance_id) is not self.find(member_id):
            return ErrorCode.FENCED_INSTANCE_ID
        if self.find(member_id) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def tell(self, token: Token, error: ErrorCode = ErrorCode.NONE, generation: int | None = None) -> None:
        assert token not in self.told
        self.told[token] = Told(error, generation, self.leader)

    # Requests of members.

    def join(self, token: Token, member_id: str, instance_id: str | None, metadata: bytes, now_ms: int) -> None:
        if not member_id:
            assert instance_id is not None
            holder = self.holder(instance_id)
            newcomer = self.newcomers[token] = holder or ModelMember(None, instance_id, metadata, None, token)
            if holder is None:
                self._add(newcomer, now_ms)
            else:
                self._return(newcomer, token, metadata, now_ms)
        elif instance_id is None and member_id in self.expected:
            del self.expected[member_id]
            self._add(ModelMember(member_id, None, metadata, None, token), now_ms)
        elif (error := self.check(member_id, instance_id)) is not ErrorCode.NONE:
            self.tell(token, error)
        else:
            member = self.find(member_id)
            assert member is not None
            self._join_again(member, token, metadata, now_ms)

    def _add(self, member: ModelMember, now_ms: int) -> None:
        member.is_new = True
        member.deadline_ms = now_ms + NEW_MEMBER_MS
        self.members.append(member)
        self.leader = self.leader or member
        self.gather(now_ms)

    def _join_again(self, member: ModelMember, token: Token, metadata: bytes, now_ms: int) -> None:
        leads = member is self.leader and self.state == "Stable"
        if self.state != "PreparingRebalance" and member.metadata == metadata and not leads:
            self.tell(token, generation=self.generation)
            return
        if member.join is not None:
            self.tell(member.join, ErrorCode.REBALANCE_IN_PROGRESS)
        member.join, member.metadata = token, metadata
        self.gather(now_ms)

    def _return(self, member: ModelMember, token: Token, metadata: bytes, now_ms: int) -> None:
        for waiting in (member.join, member.sync):
            if waiting is not None:
                self.tell(waiting, ErrorCode.FENCED_INSTANCE_ID)
        self.members.remove(member)
        self.members.append(member)
        self._synced(member)
        member.member_id, member.metadata, member.join, member.sync = None, metadata, token, None
        member.is_new, member.deadline_ms = False, now_ms + SESSION_MS
        if self.state == "Stable":
            member.join = None
            self.tell(token, generation=self.generation)
            self.is_stored = True
        else:
            self.gather(now_ms)

    def sync(self, token: Token, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        error = self.check(member_id, instance_id, generation)
        if error is ErrorCode.NONE and self.state == "PreparingRebalance":
            error = ErrorCode.REBALANCE_IN_PROGRESS
        member = self.find(member_id)
        if error is not ErrorCode.NONE or member is None:
            self.tell(token, error)
            return
        self._synced(member)
        if member.sync is not None:
            self.tell(member.sync, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync = token
        if self.state == "CompletingRebalance" and member is self.leader:
            self.state = "Stable"
            self.is_stored = True
        if self.state == "Stable":
            self._answer_syncs(ErrorCode.NONE, now_ms)

    def heartbeat(self, token: Token, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        error = self.check(member_id, instance_id, generation)
        if error is ErrorCode.NONE:
            self._heard_of(member_id, now_ms)
            error = ErrorCode.REBALANCE_IN_PROGRESS if self.state == "PreparingRebalance" else error
        self.tell(token, error)

    def leave(self, token: Token, member_id: str, instance_id: str | None, now_ms: int) -> None:
        self.tell(token)
        if self.expected.pop(member_id, None) is not None:
            if self.state == "PreparingRebalance":
                self.gather(now_ms)
            return
        if not member_id and instance_id is not None:
            member = self.holder(instance_id)
        else:
            member = self.find(member_id) if self.check(member_id, instance_id) is ErrorCode.NONE else None
        if member is not None:
            self._drop(member)
        if member is not None or self.state == "PreparingRebalance":
            self.gather(now_ms)

    def commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        if generation < 0 and self.state == "Empty":
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.check(member_id, instance_id, generation)
        if error is ErrorCode.NONE and self.state == "CompletingRebalance":
            return ErrorCode.REBALANCE_IN_PROGRESS
        if error is ErrorCode.NONE:
            self._heard_of(member_id, now_ms)
        return error

    def _heard_of(self, member_id: str, now_ms: int) -> None:
        member = self.find(member_id)
        assert member is not None
        member.deadline_ms = now_ms + SESSION_MS

    # Rebalances.

    def gather(self, now_ms: int) -> None:
        before = self.state
        if before == "CompletingRebalance":
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        if before != "PreparingRebalance":
            self.sync_deadline_ms = None
            self.state = "PreparingRebalance"
        everybody = all(each.join is not None for each in self.members) and not self.expected
        if before == "Empty" or everybody or not self.members:
            self._go_on(now_ms)
        elif self.join_deadline_ms is None:
            self.join_deadline_ms = now_ms + REBALANCE_MS

    def _go_on(self, now_ms: int) -> None:
        self.join_deadline_ms = None
        for member in [each for each in self.members if each.join is None and each.instance_id is None]:
            self._drop(member)
        here = [each for each in self.members if each.join is not None]
        if self.members and not here:
            self.join_deadline_ms = now_ms + REBALANCE_MS
            return
        self.generation += 1
        self.state = "CompletingRebalance" if here else "Empty"
        self.is_stored |= not here
        if here and self.leader not in here:
            self.leader = here[0]
        self.to_sync = list(self.members)
        self.sync_deadline_ms = now_ms + REBALANCE_MS if here else None
        for member in self.members:
            if member.join is not None:
                self.tell(member.join, generation=self.generation)
            member.join, member.is_new, member.deadline_ms = None, False, now_ms + SESSION_MS

    def _synced(self, member: ModelMember) -> None:
        self.to_sync = [each for each in self.to_sync if each is not member]
        if not self.to_sync:
            self.sync_deadline_ms = None

    def _answer_syncs(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.members:
            if member.sync is not None:
                self.tell(member.sync, error)
                member.sync, member.deadline_ms = None, now_ms + SESSION_MS

    def _drop(self, member: ModelMember) -> None:
        for waiting in (member.join, member.sync):
            if waiting is not None:
                self.tell(waiting, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.remove(member)
        self.to_sync = [each for each in self.to_sync if each is not member]
        if self.leader is member:
            self.leader = self.members[0] if self.members else None

    # Time.

    def pass_time(self, until_ms: int) -> None:
        while (now_ms := min((each for each in self._moments() if each is not None), default=until_ms + 1)) <= until_ms:
            self._happen(now_ms)

    def _moments(self) -> list[int | None]:
        members = [each.deadline_ms for each in self.members]
        return [*members, *self.expected.values(), self.join_deadline_ms, self.sync_deadline_ms]

    def _happen(self, now_ms: int) -> None:
        for member in [each for each in self.members if each.deadline_ms == now_ms]:
            if member.deadline_ms != now_ms:
                continue
            member.deadline_ms = None
            if member.is_new or (member.join is None and member.sync is None):
                self._drop(member)
                self.gather(now_ms)
        for member_id in [each for each, due_ms in self.expected.items() if due_ms == now_ms]:
            del self.expected[member_id]
            if self.state == "PreparingRebalance":
                self.gather(now_ms)
        if self.join_deadline_ms == now_ms:
            self._go_on(now_ms)
        if self.sync_deadline_ms == now_ms:
            self.sync_deadline_ms = None
            for member in self.to_sync:
                self._drop(member)
            self.gather(now_ms)

    def after_restart(self, now_ms: int) -> "ModelGroup":
        """Return the group as another machine restores it from the last written state."""
        again = deepcopy(self)
        again.state = "Stable" if again.members else "Empty"
        again.told.clear()
        again.newcomers.clear()
        again.expected.clear()
        again.to_sync.clear()
        again.join_deadline_ms = again.sync_deadline_ms = None
        for member in again.members:
            member.join = member.sync = None
            member.is_new, member.deadline_ms = False, now_ms + SESSION_MS
        return again
