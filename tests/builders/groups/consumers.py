"""Models consumers of both group protocols: they send commands to a driven machine and follow its answers."""

from dataclasses import dataclass, field
from typing import Any

from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.groups.commands import (
    AssignedBytes,
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OfferedProtocol,
    OwnedPartitions,
    SyncGroup,
)
from millstream.groups.responses import (
    ConsumerGroupDescription,
    ConsumerHeartbeatResponse,
    EmptyResponse,
    JoinResponse,
    LeaveResponse,
    SyncResponse,
)
from millstream.model.errors import ErrorCode
from millstream.model.ids import TopicIdBytes
from millstream.wire.messages import read_versioned, write_versioned

Place = tuple[str, int]
"""A topic and a partition number."""

FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
REBALANCE_MS = 30_000
SESSION_MS = 45_000
JOINING: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topics": ("orders",), "owned": ()}
"""The fields of a joining member's heartbeat."""


def request(member_id: str, epoch: int, **other: Any) -> ConsumerHeartbeat:
    """Build a heartbeat that reports no change."""
    fields: dict[str, Any] = {
        "group_id": "g",
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topics": None,
        "subscribed_regex": None,
        "server_assignor": None,
        "owned": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
    }
    return ConsumerHeartbeat(member_id=member_id, member_epoch=epoch, **(fields | other))


def describe(driver: Driver, group_id: str = "g") -> ConsumerGroupDescription:
    return driver.ask(DescribeConsumerGroup(group_id), ConsumerGroupDescription)


@dataclass(eq=False)
class Consumer:
    """A member of the consumer protocol.

    It owns its last assignment. It drops revoked partitions at once, and reports that with its next heartbeat.
    """

    driver: Driver
    member_id: str
    topics: tuple[str, ...] = ("orders",)
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    group_id: str = "g"
    epoch: int = 0
    owned: set[tuple[bytes, int]] = field(default_factory=set)
    _is_owned_told: bool = False
    _missed_one: bool = False

    @property
    def image(self) -> Topics:
        assert isinstance(self.driver.topics, Topics)
        return self.driver.topics

    @property
    def places(self) -> set[Place]:
        """Return its owned partitions of topics that exist."""
        named = ((self.image.by_id(topic_id), number) for topic_id, number in self.owned)
        return {(topic.name, number) for topic, number in named if topic is not None}

    def join(self) -> ConsumerHeartbeatResponse:
        self.epoch = 0
        self.owned = set()
        return self.beat()

    def beat(self, full: bool = False, is_answer_lost: bool = False) -> ConsumerHeartbeatResponse:
        """Send one heartbeat.

        A fenced member drops all partitions and joins with its next heartbeat. After a lost answer the next heartbeat
        is complete.
        """
        answer = self.driver.ask(self._request(full or self._missed_one or self.epoch == 0), ConsumerHeartbeatResponse)
        self._missed_one = is_answer_lost
        if not is_answer_lost:
            self._take(answer)
        return answer

    def _request(self, is_full: bool) -> ConsumerHeartbeat:
        said: dict[str, Any] = {"group_id": self.group_id, "instance_id": self.instance_id}
        if is_full:
            said |= {"rebalance_timeout_ms": REBALANCE_MS, "server_assignor": self.assignor}
            said |= {"subscribed_topics": self.topics, "subscribed_regex": self.regex}
        if is_full or not self._is_owned_told:
            by_topic: dict[bytes, list[int]] = {}
            for topic_id, number in sorted(self.owned):
                by_topic.setdefault(topic_id, []).append(number)
            said["owned"] = tuple(
                OwnedPartitions(TopicIdBytes(topic_id), tuple(each)) for topic_id, each in by_topic.items()
            )
        return request(self.member_id, self.epoch, **said)

    def _take(self, answer: ConsumerHeartbeatResponse) -> None:
        if answer.error in FENCED:
            self.epoch, self.owned = 0, set()
            return
        assert answer.error is ErrorCode.NONE, answer
        assert answer.member_epoch >= self.epoch, "epochs never decrease"
        self.epoch = answer.member_epoch
        self._is_owned_told = answer.assignment is None
        if answer.assignment is not None:
            self.owned = {(each.topic_id, number) for each in answer.assignment for number in each.partitions}

    def forgotten(self) -> None:
        """Apply a removal by the group: its partitions do not count as owned any more."""
        self.epoch, self.owned = 0, set()

    def move_to(self, driver: Driver) -> None:
        """Its broker has started again."""
        self.driver = driver

    def subscribe(self, *topics: str, regex: str | None = None) -> ConsumerHeartbeatResponse:
        self.topics, self.regex = topics, regex
        return self.beat(full=True)

    def leave(self, epoch: int = -1) -> ConsumerHeartbeatResponse:
        command = request(self.member_id, epoch, group_id=self.group_id, instance_id=self.instance_id)
        self.epoch, self.owned = 0, set()
        return self.driver.ask(command, ConsumerHeartbeatResponse)


@dataclass(eq=False)
class ClassicConsumer:
    """A member of the classic protocol, eager or cooperative.

    As the leader it assigns all subscribed partitions in turn. A cooperative leader assigns a partition only after its
    owner has released it.
    """

    driver: Driver
    topics: tuple[str, ...] = ("orders",)
    is_cooperative: bool = False
    instance_id: str | None = None
    group_id: str = "g"
    member_id: str = ""
    generation: int = -1
    places: set[Place] = field(default_factory=set)
    _token: int | None = None
    _wants_to_join: bool = True

    @property
    def protocol(self) -> OfferedProtocol:
        owned = _by_topic(self.places)
        fields = {"topics": list(self.topics), "owned_partitions": owned, "generation_id": self.generation}
        name = "cooperative-sticky" if self.is_cooperative else "range"
        return OfferedProtocol(name, write_versioned("ConsumerProtocolSubscription", 2, fields))

    def step(self) -> ErrorCode | None:
        """Do the client's next step; returns its error, or None while an answer is pending."""
        if self._token is not None:
            return self._look()
        if self._wants_to_join:
            if not self.is_cooperative:
                self.places = set()
            self._token = self.driver.send(self._join())
            return self._look()
        done = self.driver.ask(
            Heartbeat(self.group_id, self.generation, self.member_id, self.instance_id), EmptyResponse
        )
        if done.error is not ErrorCode.NONE:
            self._begin_again(done.error)
        return done.error

    def leave(self) -> None:
        """Leave the group if it is a member, and drop its pending requests."""
        if self.member_id:
            self.driver.ask(
                LeaveGroup(self.group_id, (LeavingMember(self.member_id, self.instance_id),)), LeaveResponse
            )
        self.places, self.member_id, self.generation = set(), "", -1
        self._token, self._wants_to_join = None, True

    def forgotten(self) -> None:
        """Apply a removal by the group: its partitions do not count as owned any more."""
        self.places = set()

    def move_to(self, driver: Driver) -> None:
        """Switch to a restarted broker: the pending answer is lost, so the request is sent again."""
        self.driver = driver
        self._wants_to_join |= self._token is not None
        self._token = None

    def _look(self) -> ErrorCode | None:
        assert self._token is not None
        answer = self.driver.answers.get(self._token)
        if answer is None:
            return None
        self._token = None
        if isinstance(answer, JoinResponse):
            return self._joined(answer)
        assert isinstance(answer, SyncResponse)
        if answer.error is not ErrorCode.NONE:
            self._begin_again(answer.error)
            return answer.error
        before, self.places = self.places, _places(answer.assignment)
        self._wants_to_join = self.is_cooperative and not before <= self.places
        return answer.error

    def _joined(self, joined: JoinResponse) -> ErrorCode | None:
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return joined.error
        if joined.error is not ErrorCode.NONE:
            self._begin_again(joined.error)
            return joined.error
        self.member_id, self.generation, self._wants_to_join = joined.member_id, joined.generation, False
        shares = self._shares(joined) if joined.members else {}
        sync = SyncGroup(
            group_id=self.group_id,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=tuple(AssignedBytes(member_id, data) for member_id, data in shares.items()),
        )
        self._token = self.driver.send(sync)
        return self._look()

    def _begin_again(self, error: ErrorCode) -> None:
        self._wants_to_join = True
        if error is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.places, self.generation = set(), -1
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _join(self) -> JoinGroup:
        return JoinGroup(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id="classic",
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(self.protocol,),
            knows_member_id_required=self.instance_id is None,
            can_skip_assignment=True,
        )

    def _shares(self, joined: JoinResponse) -> dict[str, bytes]:
        image = self.driver.topics
        assert isinstance(image, Topics)
        told = {
            each.member_id: read_versioned("ConsumerProtocolSubscription", each.metadata) for each in joined.members
        }
        owners = {
            (row["topic"], number): member_id
            for member_id, fields in told.items()
            for row in fields["owned_partitions"]
            for number in row["partitions"]
        }
        shares: dict[str, set[Place]] = {member_id: set() for member_id in told}
        wanted = {name for fields in told.values() for name in fields["topics"]}
        for index, place in enumerate(sorted(place for place in image.partitions if place[0] in wanted)):
            readers = sorted(member_id for member_id, fields in told.items() if place[0] in fields["topics"])
            taker = readers[index % len(readers)]
            if owners.get(place, taker) == taker:
                shares[taker].add(place)
        return {member_id: _assignment(places) for member_id, places in shares.items()}


def _by_topic(places: set[Place]) -> list[dict[str, Any]]:
    names = sorted({name for name, _ in places})
    return [{"topic": name, "partitions": sorted(number for each, number in places if each == name)} for name in names]


def _assignment(places: set[Place]) -> bytes:
    return write_versioned("ConsumerProtocolAssignment", 2, {"assigned_partitions": _by_topic(places)})


def _places(data: bytes) -> set[Place]:
    if not data:
        return set()
    rows = read_versioned("ConsumerProtocolAssignment", data)["assigned_partitions"]
    return {(row["topic"], number) for row in rows for number in row["partitions"]}
