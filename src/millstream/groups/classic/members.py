"""Who is in a classic group, without any notion of time.

Invariants: `awaiting_join` counts the members whose join waits for an answer; the leader is a member, or None when
there is nobody; a static id belongs to exactly one member; nobody is both a member and expected to become one;
`told_bytes` is what all of them told, and what the ids take that were given out.
"""

from collections.abc import Iterator

from msgspec import Struct

from millstream.groups.commands import JoinGroup, OfferedProtocol
from millstream.groups.effects import Effects, Token
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
    """By preference, the best first."""
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False
    """Whether it has not yet been told that it is a member."""

    @property
    def told_bytes(self) -> int:
        """What it told of itself."""
        names = text_bytes(self.member_id, self.instance_id, self.client_id, self.client_host)
        return names + protocols_bytes(self.protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it tells the assignor of this name."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def joined(self, protocol_name: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol_name))


class ClassicMembers:
    """The members in the order in which they came, and those who were given an id and are expected."""

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
        """Ids given out to members that are to come again with them."""
        self.to_sync: dict[str, None] = {}
        """Members of this generation that have not asked for their assignment yet."""
        self.changes = 0
        """Another number whenever members have come, gone, or said something else to their assignors."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._by_id.values())

    def get(self, member_id: str) -> ClassicMember | None:
        return self._by_id.get(member_id)

    def static_id(self, instance_id: str | None) -> str | None:
        """The member that has this static id."""
        return None if instance_id is None else self._static.get(instance_id)

    @property
    def all_joined(self) -> bool:
        """Whether there is nobody to wait for."""
        return self.awaiting_join == len(self._by_id) and not self.expected

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: as long as the most patient member allows."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def expect(self, member_id: str) -> None:
        """Somebody was given this id, and is to come again with it."""
        self.expected[member_id] = None
        self.told_bytes += text_bytes(member_id)

    def expect_no_longer(self, member_id: str) -> bool:
        """Whether it was expected."""
        if member_id not in self.expected:
            return False
        del self.expected[member_id]
        self.told_bytes -= text_bytes(member_id)
        return True

    def add(self, member: ClassicMember) -> None:
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.expect_no_longer(member.member_id)
        self.awaiting_join += member.join_token is not None
        self._count(member, 1)

    def remove(self, member: ClassicMember) -> None:
        """Take out a member whose tokens have been answered."""
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self.to_sync.pop(member.member_id, None)
        self._count(member, -1)
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), None)

    def rename(self, member: ClassicMember, new_id: str) -> None:
        """Let a static member go on under another id, with its assignment, and as the leader if it was."""
        led = self.leader == member.member_id
        self.remove(member)
        member.member_id = new_id
        self.add(member)
        if led:
            self.leader = new_id

    def update(self, member: ClassicMember, command: JoinGroup, token: Token, effects: Effects) -> None:
        """A member joins again: what it says now counts, and an earlier join of it that still waits is answered."""
        self.answer_join(member, JoinResponse(ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id), effects)
        self._count(member, -1)
        member.protocols = command.protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = command.rebalance_timeout_ms
        member.session_timeout_ms = command.session_timeout_ms
        member.join_token = token
        self.awaiting_join += 1

    def answer_join(self, member: ClassicMember, answer: JoinResponse, effects: Effects) -> None:
        """Answer the member's join, if one waits."""
        if member.join_token is not None:
            effects.reply(member.join_token, answer)
            member.join_token = None
            self.awaiting_join -= 1

    def answer_sync(self, member: ClassicMember, answer: SyncResponse, effects: Effects) -> bool:
        """Answer the member's sync, if one waits; whether one did."""
        if member.sync_token is None:
            return False
        effects.reply(member.sync_token, answer)
        member.sync_token = None
        return True

    def elect(self) -> bool:
        """Let a member that has joined be the leader; whether there is one."""
        leader = self._by_id.get(self.leader or "")
        if leader is not None and leader.join_token is None:
            leader = next((member for member in self if member.join_token is not None), None)
        if leader is None:
            return False
        self.leader = leader.member_id
        return True

    def support(self, protocols: tuple[OfferedProtocol, ...]) -> bool:
        """Whether all members can work with at least one of the protocols."""
        return any(self._support.get(each.name, 0) == len(self._by_id) for each in protocols)

    def choose_protocol(self) -> str | None:
        """The one with most votes among those that all support: each member votes for what it likes best of them.
        Between equals, what the first member likes better."""
        everybody = len(self._by_id)
        votes: dict[str, int] = {}
        for member in self:
            for name, _ in member.protocols:
                if self._support[name] == everybody:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=lambda name: votes[name], default=None)

    def _count(self, member: ClassicMember, by: int) -> None:
        self.changes += 1
        self.told_bytes += by * member.told_bytes
        for name in dict.fromkeys(each.name for each in member.protocols):
            count = self._support.get(name, 0) + by
            if count:
                self._support[name] = count
            else:
                del self._support[name]
