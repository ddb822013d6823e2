"""Holds the members of a classic group. This module has no notion of time.

Invariants:
- `awaiting_join` is the number of members whose join is not answered yet.
- The leader is a member; it is None if there are no members.
- An instance id belongs to exactly one member.
- An expected id does not belong to a member yet.
- `told_bytes` is the size of the data that all members sent about themselves, plus the size of the expected ids.

`_check` asserts those invariants that are cheap to check.
"""

from collections.abc import Iterator

from msgspec import Struct

from millstream.coordination.effects import Token
from millstream.groups.commands import JoinGroup, OfferedProtocol
from millstream.groups.effects import GroupEffects
from millstream.groups.responses import JoinedMember, JoinResponse, SyncResponse
from millstream.groups.size_limits import protocols_bytes, text_bytes
from millstream.model.errors import ErrorCode


class ClassicMember(Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[OfferedProtocol, ...]
    """Supported protocols in order of preference, the preferred one first."""
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False
    """True until the member's first join is answered."""

    @property
    def told_bytes(self) -> int:
        """Size of the data that the member sent about itself."""
        names = text_bytes(self.member_id, self.instance_id, self.client_id, self.client_host)
        return names + protocols_bytes(self.protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Returns the metadata that the member sends to the assignor of this name."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def joined(self, protocol_name: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol_name))


class ClassicMembers:
    """The members in the order in which they joined, and the ids issued to clients that have not joined with them
    yet."""

    __slots__ = (
        "_by_id",
        "_static",
        "_support",
        "awaiting_join",
        "changes",
        "expected",
        "leader",
        "to_sync",
        "told_bytes",
    )

    def __init__(self) -> None:
        self._by_id: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        self._support: dict[str, int] = {}
        self.awaiting_join = 0
        self.told_bytes = 0
        self.leader: str | None = None
        self.expected: dict[str, None] = {}
        """Issued ids with which the client has not joined yet."""
        self.to_sync: dict[str, None] = {}
        """Members of the current generation that have not requested their assignment yet."""
        self.changes = 0
        """Changes whenever a member joins, leaves or sends other protocols."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._by_id.values())

    def get(self, member_id: str) -> ClassicMember | None:
        return self._by_id.get(member_id)

    def static_id(self, instance_id: str | None) -> str | None:
        """Returns the id of the member that has this instance id."""
        return None if instance_id is None else self._static.get(instance_id)

    @property
    def all_joined(self) -> bool:
        """True if all members have joined and no further member is expected."""
        return self.awaiting_join == len(self._by_id) and not self.expected

    @property
    def rebalance_timeout_ms(self) -> int:
        """Maximum duration of a rebalance: the longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def expect(self, member_id: str) -> None:
        """Records that this id was issued and that a client should join with it."""
        assert member_id not in self._by_id, "a member id is issued once"
        assert member_id not in self.expected, "a member id is issued once"
        self.expected[member_id] = None
        self.told_bytes += text_bytes(member_id)

    def expect_no_longer(self, member_id: str) -> bool:
        """Removes an expected id. Returns True if it was expected."""
        if member_id not in self.expected:
            return False
        del self.expected[member_id]
        self.told_bytes -= text_bytes(member_id)
        return True

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self._by_id, "a member joins once"
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._static, "an instance id belongs to one member"
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.expect_no_longer(member.member_id)
        self.awaiting_join += member.join_token is not None
        self._count(member, 1)
        self._check()

    def remove(self, member: ClassicMember) -> None:
        """Removes a member whose tokens have been answered."""
        assert member.join_token is None, "a member is removed after its join is answered"
        assert member.sync_token is None, "a member is removed after its sync is answered"
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self.to_sync.pop(member.member_id, None)
        self._count(member, -1)
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), None)
        self._check()

    def rename(self, member: ClassicMember, new_id: str) -> None:
        """Gives a static member another id. It keeps its assignment and remains the leader if it was."""
        led = self.leader == member.member_id
        self.remove(member)
        member.member_id = new_id
        self.add(member)
        if led:
            self.lead(new_id)

    def lead(self, member_id: str) -> None:
        """Makes this member the leader."""
        self.leader = member_id
        self._check()

    def update(self, member: ClassicMember, command: JoinGroup, token: Token, effects: GroupEffects) -> None:
        """Applies the new join of a member: replaces its protocols and timeouts, and answers an earlier join that still
        waits."""
        self.answer_join(member, JoinResponse(ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id), effects)
        self._count(member, -1)
        member.protocols = command.protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = command.rebalance_timeout_ms
        member.session_timeout_ms = command.session_timeout_ms
        member.join_token = token
        self.awaiting_join += 1
        self._check()

    def answer_join(self, member: ClassicMember, answer: JoinResponse, effects: GroupEffects) -> None:
        """Answers the member's join, if it waits for an answer."""
        if member.join_token is not None:
            effects.reply(member.join_token, answer)
            member.join_token = None
            self.awaiting_join -= 1

    def answer_sync(self, member: ClassicMember, answer: SyncResponse, effects: GroupEffects) -> bool:
        """Answers the member's sync, if it waits for an answer. Returns True if it did."""
        if member.sync_token is None:
            return False
        effects.reply(member.sync_token, answer)
        member.sync_token = None
        return True

    def elect(self) -> bool:
        """Ensures that the leader has joined: otherwise another member that has joined becomes the leader. Returns
        False if no member has joined."""
        leader = self._by_id.get(self.leader or "")
        if leader is not None and leader.join_token is None:
            leader = next((member for member in self if member.join_token is not None), None)
        if leader is None:
            return False
        self.lead(leader.member_id)
        return True

    def support(self, protocols: tuple[OfferedProtocol, ...]) -> bool:
        """True if all members support at least one of the protocols."""
        return any(self._support.get(each.name, 0) == len(self._by_id) for each in protocols)

    def choose_protocol(self) -> str | None:
        """Returns the protocol with the most votes among those that all members support. Each member votes for its most
        preferred one; a tie goes to the protocol that got its first vote earliest."""
        everybody = len(self._by_id)
        votes: dict[str, int] = {}
        for member in self:
            for name, _ in member.protocols:
                if self._support[name] == everybody:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=lambda name: votes[name], default=None)

    def _check(self) -> None:
        assert 0 <= self.awaiting_join <= len(self._by_id), "only members have pending joins"
        assert self.leader in self._by_id or not (self.leader or self._by_id), "the leader is a member"
        assert len(self._static) <= len(self._by_id), "a member has at most one instance id"
        assert self.told_bytes >= 0, "the size of the members' data is not negative"

    def _count(self, member: ClassicMember, by: int) -> None:
        self.changes += 1
        self.told_bytes += by * member.told_bytes
        for name in dict.fromkeys(each.name for each in member.protocols):
            count = self._support.get(name, 0) + by
            if count:
                self._support[name] = count
            else:
                del self._support[name]
