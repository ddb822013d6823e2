"""Drives a group machine step by step: with a manual clock and tokens, and with all its effects recorded."""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Self, TypeVar

from millstream.coordination.effects import NO_TOKEN, Effects, LogRecord, Now, Token
from millstream.groups.commands import (
    AssignedBytes,
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OfferedProtocol,
    OffsetToCommit,
    SyncGroup,
    TopicsDeleted,
)
from millstream.groups.effects import GroupEffects
from millstream.groups.events import GroupEvent
from millstream.groups.group_configs import GroupConfigs
from millstream.groups.machine import GroupMachine
from millstream.groups.machine_context import MachineContext
from millstream.groups.member_memory import MemberBudget
from millstream.groups.records import NO_TOPIC
from millstream.groups.responses import (
    Answer,
    EmptyResponse,
    GroupDescription,
    JoinResponse,
    LeaveResponse,
    OffsetsResponse,
    PartitionErrors,
    SyncResponse,
)
from millstream.groups.settings import GroupSettings
from millstream.groups.topic_image import TopicImage, TopicInfo
from millstream.model.ids import Offset
from millstream.model.limits import NO_LEADER_EPOCH
from millstream.testing.simulated.entropy import SimulatedEntropy
from millstream.wire.messages import write_versioned

START_MS = 1_000_000
WALL_MS = 1_700_000_000_000
"""The offset of the wall clock from the monotonic clock."""

SESSION_MS = 10_000
REBALANCE_MS = 60_000

A = TypeVar("A", bound=Answer)


class AnyTopic:
    """Topics for classic groups, which do not check them: every topic exists, without an id or regex matches."""

    version = 0

    def get(self, name: str) -> TopicInfo | None:
        return TopicInfo(name, NO_TOPIC, 1)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


ANY_TOPIC = AnyTopic()


def subscription(*topics: str, version: int = 1) -> bytes:
    """Encode the subscription that a consumer sends to its assignor."""
    return write_versioned("ConsumerProtocolSubscription", version, {"topics": list(topics)})


def offering(*names: str, metadata: bytes = b"") -> tuple[OfferedProtocol, ...]:
    return tuple(OfferedProtocol(name, metadata) for name in names)


class StoredNowhere:
    """Provides no settings of single groups, and forgets those that are set."""

    async def group_settings(self) -> Mapping[str, Mapping[str, str]]:
        return {}

    async def change_group_settings(self, group_id: str, settings: Mapping[str, str]) -> None:
        pass


class Driver:
    """Drives a machine, and asserts that it answers each issued token at most once and no other token."""

    def __init__(
        self,
        log: Iterable[LogRecord] = (),
        at_ms: int = START_MS,
        topics: TopicImage = ANY_TOPIC,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self._settings = {"initial_rebalance_delay_ms": 0, "consumer_assignment_interval_ms": 0} | settings
        self.topics = topics
        self.log: list[LogRecord] = list(log)
        self._seed = seed
        self.refusals = 0
        self.configs = GroupConfigs(GroupSettings(**self._settings), StoredNowhere())
        budget = MemberBudget(self.configs.broker.memory_bytes, lambda: self.machine.member_bytes, self._refused)
        context = MachineContext(self.configs, topics, SimulatedEntropy(Random(seed)), budget)
        self.machine = GroupMachine(context)
        self.at_ms = at_ms
        self.answers: dict[Token, Answer] = {}
        self.events: list[GroupEvent] = []
        self.waiting: dict[Token, Command] = {}
        self.last_token = 0
        for record in self.log:
            self.machine.replay(record)
        effects: GroupEffects = Effects()
        for _ in self.machine.loading(lambda: self.now, effects):
            pass
        self._take(effects)

    @property
    def now(self) -> Now:
        return Now(self.at_ms, WALL_MS + self.at_ms)

    def _refused(self) -> None:
        self.refusals += 1

    def restarted(self) -> Self:
        """Return a driver of a new machine that has replayed the same log, with a different random seed."""
        return type(self)(self.log, self.at_ms, self.topics, self._seed + 1, **self._settings)

    def send(self, command: Command) -> Token:
        """Send a command without expecting its answer yet."""
        token = self.last_token = self.last_token + 1
        self.waiting[token] = command
        self._handle(command, token)
        return token

    def _handle(self, command: Command, token: Token) -> None:
        effects: GroupEffects = Effects()
        self.machine.handle(command, token, self.now, effects)
        self._take(effects)

    def ask(self, command: Command, kind: type[A]) -> A:
        """Send a command that must be answered at once."""
        return self.answer(self.send(command), kind)

    def answer(self, token: Token, kind: type[A]) -> A:
        answer = self.answers[token]
        assert isinstance(answer, kind)
        return answer

    def _take(self, effects: GroupEffects) -> None:
        self.log += effects.records
        self.events += [notice for notice in effects.notices if isinstance(notice, GroupEvent)]
        for token, answer in effects.replies:
            del self.waiting[token]
            self.answers[token] = answer

    def tick(self) -> None:
        effects: GroupEffects = Effects()
        self.machine.tick(self.now, effects)
        self._take(effects)

    def pass_time(self, by_ms: int) -> None:
        """Advance the time, with a tick whenever the machine has requested one."""
        until_ms = self.at_ms + by_ms
        while (due_ms := self.machine.next_deadline_ms) is not None and due_ms <= until_ms:
            self.at_ms = max(self.at_ms, due_ms)
            self.tick()
        self.at_ms = until_ms

    def delete_topics(self, *names: str) -> None:
        self._handle(TopicsDeleted(names), NO_TOKEN)

    # Members.

    def send_join(self, member_id: str = "", group_id: str = "g", **other: Any) -> Token:
        fields: dict[str, Any] = {
            "instance_id": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": offering("range", metadata=subscription("orders")),
            "knows_member_id_required": False,
            "can_skip_assignment": True,
        }
        return self.send(JoinGroup(group_id=group_id, member_id=member_id, **(fields | other)))

    def join(self, member_id: str = "", group_id: str = "g", **other: Any) -> JoinResponse:
        """Join with a request that must be answered at once."""
        return self.answer(self.send_join(member_id, group_id, **other), JoinResponse)

    def send_sync(self, joined: JoinResponse, group_id: str = "g", **other: Any) -> Token:
        """Send a sync; the leader's sync assigns each member its own id."""
        fields: dict[str, Any] = {
            "generation": joined.generation,
            "member_id": joined.member_id,
            "instance_id": None,
            "protocol_type": joined.protocol_type,
            "protocol_name": joined.protocol_name,
            "assignments": tuple(AssignedBytes(each.member_id, each.member_id.encode()) for each in joined.members),
        }
        return self.send(SyncGroup(group_id=group_id, **(fields | other)))

    def sync(self, joined: JoinResponse, group_id: str = "g", **other: Any) -> SyncResponse:
        return self.answer(self.send_sync(joined, group_id, **other), SyncResponse)

    def gathered(self, members: int = 1, group_id: str = "g", static: bool = False, **other: Any) -> list[JoinResponse]:
        """Join this number of members and return their responses, the leader first; static ids are i0, i1, …"""
        named = [other | ({"instance_id": f"i{number}"} if static else {}) for number in range(members)]
        first = self.join(group_id=group_id, **named[0])
        if members == 1:
            return [first]
        tokens = [self.send_join(group_id=group_id, **each) for each in named[1:]]
        first = self.join(first.member_id, group_id, **named[0])
        return [first, *(self.answer(token, JoinResponse) for token in tokens)]

    def stable(self, members: int = 1, group_id: str = "g", static: bool = False, **other: Any) -> list[JoinResponse]:
        """Build a stable group of this number of members, each with its assignment."""
        gathered = self.gathered(members, group_id, static, **other)
        for each in gathered:
            self.sync(each, group_id)
        return gathered

    def heartbeat(self, joined: JoinResponse, group_id: str = "g", **other: Any) -> EmptyResponse:
        fields: dict[str, Any] = {"generation": joined.generation, "member_id": joined.member_id, "instance_id": None}
        return self.ask(Heartbeat(group_id=group_id, **(fields | other)), EmptyResponse)

    def leave(self, *members: str | tuple[str, str | None], group_id: str = "g") -> LeaveResponse:
        named = (LeavingMember(each, None) if isinstance(each, str) else LeavingMember(*each) for each in members)
        return self.ask(LeaveGroup(group_id, tuple(named)), LeaveResponse)

    # Offsets and groups.

    def commit(
        self, *offsets: tuple[str, int, int], by: JoinResponse | None = None, group_id: str = "g", **other: Any
    ) -> PartitionErrors:
        fields: dict[str, Any] = {
            "generation": by.generation if by else -1,
            "member_id": by.member_id if by else "",
            "instance_id": None,
            "offsets": tuple(
                OffsetToCommit(topic, number, Offset(offset), NO_LEADER_EPOCH, "") for topic, number, offset in offsets
            ),
        }
        return self.ask(CommitOffsets(group_id, **(fields | other)), PartitionErrors)

    def offsets(self, group_id: str = "g", *partitions: tuple[str, int]) -> dict[tuple[str, int], int]:
        found = self.ask(FetchOffsets(group_id, partitions or None), OffsetsResponse)
        return {place: committed.offset for place, committed in found.offsets.items()}

    def describe(self, group_id: str = "g") -> GroupDescription:
        return self.ask(DescribeGroup(group_id), GroupDescription)

    def delete(self, group_id: str = "g") -> EmptyResponse:
        return self.ask(DeleteGroup(group_id), EmptyResponse)

    def delete_offsets(self, *partitions: tuple[str, int], group_id: str = "g") -> PartitionErrors:
        return self.ask(DeleteOffsets(group_id, partitions), PartitionErrors)

    def state(self, group_id: str = "g") -> str:
        return self.describe(group_id).state
