"""Makes iterator clients members of their group.

A client is a member of a group of the consumer protocol, possibly beside Kafka consumers. Assignment, session timeout,
listing and description work as for other members. The partitions of its iterators in flight count as the partitions
that the client owns. So a partition moves to another member when its iterator is committed or expires, and the client
does not have to confirm a revocation.

A client that joins subscribes to no topic. Its first GetIterator for a topic adds that topic to its subscription, which
starts a rebalance.
"""

from millstream.coordination.effects import Now
from millstream.groups.commands import (
    ConsumerHeartbeat,
    IteratorHeartbeat,
    IteratorJoin,
    IteratorLeave,
    OwnedPartitions,
)
from millstream.groups.consumer.checks import JOIN_EPOCH
from millstream.groups.consumer.group import ConsumerGroup, consumer_group_for
from millstream.groups.consumer.heartbeats import assigned_topics, heartbeat
from millstream.groups.consumer.members import MemberAssignment, MemberState, MemberSubscription
from millstream.groups.effects import GroupEffects
from millstream.groups.events import LEFT
from millstream.groups.iterators.iterator import NAME_BYTES_MAX, member_id
from millstream.groups.machine_context import MachineContext
from millstream.groups.responses import IteratorClientResponse
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicIdBytes


def check_names(group_id: str, client_id: str) -> None:
    """Checks the length of both names. Raises INVALID_GROUP_ID or INVALID_REQUEST."""
    if not 0 < len(group_id.encode()) <= NAME_BYTES_MAX:
        raise MillstreamError(ErrorCode.INVALID_GROUP_ID, f"GroupId must have 1 to {NAME_BYTES_MAX} bytes.")
    if not 0 < len(client_id.encode()) <= NAME_BYTES_MAX:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, f"ClientId must have 1 to {NAME_BYTES_MAX} bytes.")


class IteratorClient:
    """One client in its group. Each of its requests counts as a heartbeat, and advances its reconciliation by one
    step."""

    def __init__(self, context: MachineContext, group: ConsumerGroup, client_id: str) -> None:
        self.context = context
        self.group = group
        self.client_id = client_id
        self._member_id = member_id(client_id)

    @classmethod
    def find(cls, context: MachineContext, group_id: str, client_id: str) -> "IteratorClient":
        """Returns the client. Raises UNKNOWN_MEMBER_ID if it has not joined or its session has ended."""
        check_names(group_id, client_id)
        group = context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id(client_id) not in group.state.subscriptions:
            raise MillstreamError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Client {client_id} is not a member of group {group_id}, or its session has ended; join the group.",
            )
        return cls(context, group, client_id)

    @property
    def subscription(self) -> MemberSubscription:
        return self.group.state.subscriptions[self._member_id]

    @property
    def holding(self) -> MemberAssignment:
        return self.group.members.holding(self._member_id)

    @property
    def generation(self) -> int:
        """Number of the group's latest assignment (its target epoch)."""
        return self.group.state.target_epoch

    def has(self, topic_id: TopicIdBytes, partition: int) -> bool:
        """True if the client may get an iterator of this partition."""
        return partition in self.holding.assigned.get(topic_id, ())

    def still_holds(self, topic_id: TopicIdBytes, partition: int) -> bool:
        """True if no other member may have the partition yet."""
        return partition in self.holding.held.get(topic_id, ())

    def step(self, now: Now, effects: GroupEffects, topics: tuple[str, ...] | None = None) -> None:
        """Applies a heartbeat of the client. Replaces its subscribed topics, unless `topics` is None."""
        known = self.subscription
        self._heartbeat(self.holding.epoch, known.client_id, known.client_host, topics, now, effects)

    def join(self, software: str, host: str, now: Now, effects: GroupEffects) -> None:
        """Adds the client to the group. Raises GROUP_MAX_SIZE_REACHED."""
        self._heartbeat(JOIN_EPOCH, software, host, (), now, effects)

    def leave(self, now: Now, effects: GroupEffects) -> None:
        self.group.fence((self._member_id,), LEFT, now, effects)

    def _heartbeat(
        self, epoch: int, software: str, host: str, topics: tuple[str, ...] | None, now: Now, effects: GroupEffects
    ) -> None:
        group_id = self.group.group_id
        session_timeout_ms = self.context.configs.session_timeout_ms(group_id)
        command = ConsumerHeartbeat(
            group_id=group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            # The session timeout always fires first: when nothing is in flight, only a silent client can be late.
            rebalance_timeout_ms=self.context.settings.iterator_in_flight_max_ms + session_timeout_ms,
            subscribed_topics=topics,
            subscribed_regex=None,
            server_assignor=None,
            owned=self._in_flight(now),
            client_id=software,
            client_host=host,
        )
        heartbeat(self.group.members, command, now, effects)

    def _in_flight(self, now: Now) -> tuple[OwnedPartitions, ...]:
        """Returns the partitions of the iterators in flight, which count as owned. Partitions of deleted topics are
        left out, because no other member waits for them."""
        in_flight = self.context.issued.in_flight(self.group.group_id, self.client_id, now)
        return tuple(
            OwnedPartitions(topic_id, tuple(numbers))
            for topic_id, numbers in in_flight.items()
            if self.context.topics.by_id(topic_id) is not None
        )

    def described(self) -> IteratorClientResponse:
        configs, group_id, holding = self.context.configs, self.group.group_id, self.holding
        is_settled = holding.state is MemberState.STABLE and holding.epoch == self.group.state.epoch
        return IteratorClientResponse(
            generation=self.generation,
            is_settled=is_settled,
            heartbeat_interval_ms=configs.heartbeat_interval_ms(group_id),
            session_timeout_ms=configs.session_timeout_ms(group_id),
            assignment=assigned_topics(holding.assigned, self.context.topics),
        )


def join(context: MachineContext, command: IteratorJoin, now: Now, effects: GroupEffects) -> IteratorClientResponse:
    """Adds a client to its group. For a client that is already a member, this is a heartbeat. Raises the errors of
    `consumer_group_for` and `IteratorClient.join`."""
    check_names(command.group_id, command.client_id)
    try:
        client = IteratorClient.find(context, command.group_id, command.client_id)
        client.step(now, effects)
    except MillstreamError as error:
        if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        group = consumer_group_for(context, command.group_id, JOIN_EPOCH, now, effects)
        client = IteratorClient(context, group, command.client_id)
        client.join(command.software, command.host, now, effects)
    return client.described()


def client_heartbeat(
    context: MachineContext, command: IteratorHeartbeat, now: Now, effects: GroupEffects
) -> IteratorClientResponse:
    """Applies a heartbeat, and returns the client's assignment. Raises UNKNOWN_MEMBER_ID."""
    client = IteratorClient.find(context, command.group_id, command.client_id)
    client.step(now, effects)
    return client.described()


def leave(context: MachineContext, command: IteratorLeave, now: Now, effects: GroupEffects) -> IteratorClientResponse:
    """Removes a client from its group. Raises UNKNOWN_MEMBER_ID."""
    IteratorClient.find(context, command.group_id, command.client_id).leave(now, effects)
    return IteratorClientResponse()
