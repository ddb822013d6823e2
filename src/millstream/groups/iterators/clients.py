"""Clients of iterators as members of their group.

A client is a member of a group of the new protocol, beside consumers of Kafka's if there are any: its partitions are
shared out in the same way, its session ends in the same way, and it is listed and described with the others. What such
a member says to own is what it has in flight. So a partition that is to go to somebody else goes when its iterator was
committed, or its time in flight is over, and nobody has to say that it was given back.

A client that joins reads nothing yet; its first GetIterator for a topic makes it a reader of that topic, and with that
the partitions are shared out anew.
"""

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
from millstream.groups.effects import Effects, Now
from millstream.groups.iterators.iterator import NAME_BYTES_MAX, member_id
from millstream.groups.machine_context import MachineContext
from millstream.groups.responses import IteratorClientResponse
from millstream.model.errors import ErrorCode, MillstreamError


def check_names(group_id: str, client_id: str) -> None:
    """Raises INVALID_GROUP_ID or INVALID_REQUEST."""
    if not 0 < len(group_id.encode()) <= NAME_BYTES_MAX:
        raise MillstreamError(ErrorCode.INVALID_GROUP_ID, f"GroupId must have 1 to {NAME_BYTES_MAX} bytes.")
    if not 0 < len(client_id.encode()) <= NAME_BYTES_MAX:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, f"ClientId must have 1 to {NAME_BYTES_MAX} bytes.")


class IteratorClient:
    """One client in its group. Whatever it asks for is a sign of life, and an occasion for its next step."""

    def __init__(self, context: MachineContext, group: ConsumerGroup, client_id: str) -> None:
        self.context = context
        self.group = group
        self.client_id = client_id
        self._member_id = member_id(client_id)

    @classmethod
    def find(cls, context: MachineContext, group_id: str, client_id: str) -> "IteratorClient":
        """Raises UNKNOWN_MEMBER_ID for one that has not joined, or whose session is over."""
        check_names(group_id, client_id)
        group = context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id(client_id) not in group.state.subscriptions:
            raise MillstreamError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Client {client_id} is not in group {group_id}, or no longer; join it."
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
        """The group's: how often it has shared out its partitions."""
        return self.group.state.target_epoch

    def has(self, topic_id: bytes, partition: int) -> bool:
        """Whether it may have an iterator of this partition."""
        return partition in self.holding.assigned.get(topic_id, ())

    def still_holds(self, topic_id: bytes, partition: int) -> bool:
        """Whether nobody else may have the partition yet."""
        return partition in self.holding.held.get(topic_id, ())

    def step(self, now: Now, effects: Effects, topics: tuple[str, ...] | None = None) -> None:
        """Heard of; it reads these topics from now on, unless that is None."""
        known = self.subscription
        self._heartbeat(self.holding.epoch, known.client_id, known.client_host, topics, now, effects)

    def join(self, software: str, host: str, now: Now, effects: Effects) -> None:
        """Become a member; raises GROUP_MAX_SIZE_REACHED."""
        self._heartbeat(JOIN_EPOCH, software, host, (), now, effects)

    def leave(self, now: Now, effects: Effects) -> None:
        self.group.fence((self._member_id,), now, effects)

    def _heartbeat(
        self, epoch: int, software: str, host: str, topics: tuple[str, ...] | None, now: Now, effects: Effects
    ) -> None:
        settings = self.context.settings
        command = ConsumerHeartbeat(
            group_id=self.group.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            # It is only ever late when all that it has in flight is over, and it is silent: that is its session's end.
            rebalance_timeout_ms=settings.iterator_in_flight_max_ms + settings.consumer_session_timeout_ms,
            subscribed_topics=topics,
            subscribed_regex=None,
            server_assignor=None,
            owned=self._in_flight(now),
            client_id=software,
            client_host=host,
        )
        heartbeat(self.group.members, command, now, effects)

    def _in_flight(self, now: Now) -> tuple[OwnedPartitions, ...]:
        """What it has in flight, as what it owns; of a topic that is gone there is nothing to be waited for."""
        in_flight = self.context.issued.in_flight(self.group.group_id, self.client_id, now)
        return tuple(
            OwnedPartitions(topic_id, tuple(numbers))
            for topic_id, numbers in in_flight.items()
            if self.context.topics.by_id(topic_id) is not None
        )

    def described(self) -> IteratorClientResponse:
        settings, holding = self.context.settings, self.holding
        is_settled = holding.state is MemberState.STABLE and holding.epoch == self.group.state.epoch
        return IteratorClientResponse(
            generation=self.generation,
            is_settled=is_settled,
            heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
            session_timeout_ms=settings.consumer_session_timeout_ms,
            assignment=assigned_topics(holding.assigned, self.context.topics),
        )


def join(context: MachineContext, command: IteratorJoin, now: Now, effects: Effects) -> IteratorClientResponse:
    """Raises what `consumer_group_for` and `IteratorClient.join` raise. A client that is a member already stays what it
    is."""
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
    context: MachineContext, command: IteratorHeartbeat, now: Now, effects: Effects
) -> IteratorClientResponse:
    """Raises UNKNOWN_MEMBER_ID."""
    client = IteratorClient.find(context, command.group_id, command.client_id)
    client.step(now, effects)
    return client.described()


def leave(context: MachineContext, command: IteratorLeave, now: Now, effects: Effects) -> IteratorClientResponse:
    """Raises UNKNOWN_MEMBER_ID."""
    IteratorClient.find(context, command.group_id, command.client_id).leave(now, effects)
    return IteratorClientResponse()
