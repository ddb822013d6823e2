"""Executes GetIterator, ListIterators, CommitIterator and DeliverIterator in the coordinator.

docs/iterators.md describes the states of an iterator.

Invariants:
- A group has at most one iterator of a partition in flight. It belongs to the client that has the partition in the
  group.
- The next iterator is issued only after the previous one has ended. An iterator ends when it is committed, when it
  expires, when its own client gets one of a newer generation, or when its client loses the partition.
- The iterator's record contains the number of delivered messages, counted from the iterator's offset:
  `0 <= delivered <= messages_max`. It is dropped when the iterator ends for any reason.

Guarantee: each issue is a record, and the answer is sent when that record is durable. So every issued iterator is known
after a restart.
"""

from msgspec.structs import replace

from millstream.coordination.effects import Now
from millstream.groups.commands import CommitIterator, DeliverIterator, GetIterator, ListIterators
from millstream.groups.consumer.group import ConsumerGroup
from millstream.groups.effects import GroupEffects
from millstream.groups.iterators.clients import IteratorClient, check_names
from millstream.groups.iterators.iterator import BEGINNING, END, MESSAGES_MAX, Iterator, member_id, told_of
from millstream.groups.iterators.records import IssuedIterator, IssuedKey
from millstream.groups.machine_context import MachineContext
from millstream.groups.offsets.committed_offsets import committed, store, stored
from millstream.groups.records import OffsetKey
from millstream.groups.responses import CommittedOffset, GivenIterator, IteratorList, IteratorResponse
from millstream.groups.topic_image import TopicInfo
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.model.limits import NO_LEADER_EPOCH

IN_FLIGHT_MIN_MS = 1_000
_DEFAULT_IN_FLIGHT = -1
DELIVERED = -1
"""The `count` of a commit that covers the delivered messages."""


def get(context: MachineContext, command: GetIterator, now: Now, effects: GroupEffects) -> IteratorResponse:
    """Returns the iterator of a partition that the client has: the one in flight, or a new one from the group's
    position.

    Raises INVALID_REQUEST, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC_OR_PARTITION, GROUP_MAX_SIZE_REACHED and
    NOT_OWNER. A request that gets NOT_OWNER may have started the rebalance that makes the client the owner.
    """
    client = IteratorClient.find(context, command.group_id, command.client_id)
    in_flight_ms = _in_flight_ms(context, command)
    topic = _topic(context, command.topic, command.partition)
    read = client.subscription.topics
    client.step(now, effects, None if topic.name in read else (*read, topic.name))
    if not client.has(topic.topic_id, command.partition):
        raise _not_owner(client, topic, command.partition)
    key = IssuedKey(command.group_id, topic.name, command.partition)
    issued = context.issued.get(key)
    if issued is None or not _is_current(issued, client, topic, context.issued.left_ms(key, now)):
        position = committed(context, OffsetKey(*key))
        issued = IssuedIterator(
            client_id=client.client_id,
            topic_id=topic.topic_id,
            generation=client.generation,
            life=_life(context, issued, topic),
            issue=issued.issue + 1 if issued is not None and issued.topic_id == topic.topic_id else 1,
            after=0,
            offset=position.offset if position is not None else command.start,
            messages_max=min(command.messages_max, MESSAGES_MAX),
            in_flight_ms=in_flight_ms,
            expires_ms=now.wall_ms + in_flight_ms,
        )
        context.issued.put(key, issued, now, effects)
    assert issued.client_id == client.client_id, "the client that has the partition also has its iterator in flight"
    return IteratorResponse(given=_announced(context, key, issued, now, effects))


def _in_flight_ms(context: MachineContext, command: GetIterator) -> int:
    """Returns how long the iterator will be in flight, and checks the other fields of the request. Raises
    INVALID_REQUEST."""
    settings = context.settings
    if command.messages_max < 1:
        raise _invalid("MaxMessages must be at least 1.")
    if command.start not in (BEGINNING, END):
        raise _invalid(f"Start must be {BEGINNING} for the beginning or {END} for the end.")
    if command.in_flight_ms == _DEFAULT_IN_FLIGHT:
        return settings.iterator_in_flight_ms
    if not IN_FLIGHT_MIN_MS <= command.in_flight_ms <= settings.iterator_in_flight_max_ms:
        raise _invalid(
            f"InFlightMs must be {_DEFAULT_IN_FLIGHT}, or {IN_FLIGHT_MIN_MS} to {settings.iterator_in_flight_max_ms}."
        )
    return command.in_flight_ms


def _topic(context: MachineContext, name: str, partition: int) -> TopicInfo:
    topic = context.topics.get(name)
    if topic is None or not 0 <= partition < topic.partitions:
        raise MillstreamError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} of topic {name!r} does not exist"
        )
    return topic


def _is_current(issued: IssuedIterator, client: IteratorClient, topic: TopicInfo, left_ms: int) -> bool:
    """True if the iterator is in flight, belongs to this client, and has the group's generation."""
    is_its_own = issued.client_id == client.client_id and issued.topic_id == topic.topic_id
    return is_its_own and not issued.is_over and issued.generation == client.generation and left_ms > 0


def _life(context: MachineContext, before: IssuedIterator | None, topic: TopicInfo) -> int:
    if before is not None and before.topic_id == topic.topic_id:
        return before.life
    return int.from_bytes(context.entropy.token(8), signed=True)


def _announced(
    context: MachineContext, key: IssuedKey, issued: IssuedIterator, now: Now, effects: GroupEffects
) -> GivenIterator:
    """Returns the iterator for the client, and notifies the partition's server of it."""
    given = _given_iterator(context, key, issued, now)
    effects.notices.append(told_of(given.iterator, given.left_ms))
    return given


def _given_iterator(context: MachineContext, key: IssuedKey, issued: IssuedIterator, now: Now) -> GivenIterator:
    assert not issued.is_over, "an ended iterator is not returned to a client"
    return GivenIterator(_iterator(key, issued), context.issued.left_ms(key, now), issued.delivered)


def _iterator(key: IssuedKey, issued: IssuedIterator) -> Iterator:
    return Iterator(
        group_id=key.group_id,
        client_id=issued.client_id,
        topic=key.topic,
        topic_id=issued.topic_id,
        partition=key.partition,
        offset=issued.offset,
        messages_max=issued.messages_max,
        generation=issued.generation,
        life=issued.life,
        issue=issued.issue,
        expires_ms=issued.expires_ms,
    )


# Commits.


def commit(context: MachineContext, command: CommitIterator, now: Now, effects: GroupEffects) -> IteratorResponse:
    """Stores the position up to which the client has read. Returns the next iterator if the client keeps the partition.

    A client may repeat a commit whose answer was lost, and gets the same answer. A commit after the expiry is accepted
    unless the partition was issued again or belongs to another client. Raises FOREIGN_ITERATOR, INVALID_REQUEST,
    UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC_OR_PARTITION, ITERATOR_SETTLED, NOT_OWNER and NOTHING_DELIVERED.
    """
    iterator = command.iterator
    topic = _check_named(context, command)
    client = IteratorClient.find(context, command.group_id, command.client_id)
    key = IssuedKey(command.group_id, iterator.topic, iterator.partition)
    issued = context.issued.get(key)
    position = _position(command, issued)
    if issued is not None and _is_repeated(issued, iterator, position):
        client.step(now, effects)
        given = None if issued.is_over else _announced(context, key, issued, now, effects)
        return IteratorResponse(given=given, position=position)
    issued = _current(client, topic, iterator, issued)
    if command.count == DELIVERED and not issued.delivered:
        raise MillstreamError(
            ErrorCode.NOTHING_DELIVERED,
            f"no messages of {iterator.topic}-{iterator.partition} were delivered since its last commit",
        )
    return _settle(context, client, key, issued, position, now, effects)


def _check_named(context: MachineContext, command: CommitIterator | DeliverIterator) -> TopicInfo:
    """Returns the topic of the iterator in a request. Raises the errors that the request alone reveals, such as an
    iterator of another client."""
    iterator, count = command.iterator, command.count
    check_names(command.group_id, command.client_id)
    if (iterator.group_id, iterator.client_id) != (command.group_id, command.client_id):
        raise MillstreamError(
            ErrorCode.FOREIGN_ITERATOR,
            f"the iterator belongs to client {iterator.client_id} in group {iterator.group_id}, "
            f"not to client {command.client_id} in group {command.group_id}",
        )
    is_delivery = isinstance(command, DeliverIterator)
    if not is_delivery <= count <= iterator.messages_max and (is_delivery or count != DELIVERED):
        raise _invalid(
            f"Count must be {is_delivery:d} to {iterator.messages_max}, the number of messages of the iterator."
        )
    if iterator.offset < 0 and count > 0:
        raise _invalid("Iterator has no offset yet: send the iterator that came with the messages.")
    topic = _topic(context, iterator.topic, iterator.partition)
    if topic.topic_id != iterator.topic_id:
        raise MillstreamError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {iterator.topic!r} was deleted and recreated after the iterator was issued",
        )
    return topic


def _current(
    client: IteratorClient, topic: TopicInfo, iterator: Iterator, issued: IssuedIterator | None
) -> IssuedIterator:
    """Returns the issued iterator if it is this one and has not ended. Raises NOT_OWNER or ITERATOR_SETTLED."""
    if not client.still_holds(iterator.topic_id, iterator.partition):
        raise _not_owner(client, topic, iterator.partition)
    if issued is None or issued.is_over or (issued.life, issued.issue) != (iterator.life, iterator.issue):
        raise MillstreamError(
            ErrorCode.ITERATOR_SETTLED,
            f"the iterator of {iterator.topic}-{iterator.partition} was committed or replaced; get the current one",
        )
    return issued


def _position(command: CommitIterator, issued: IssuedIterator | None) -> Offset:
    """Returns the group's position after this commit; -1 if the iterator has no offset yet.

    A commit of the delivered messages moves the position to the end of these messages. A repeated commit finds no
    delivered messages, and returns the position that the first attempt stored.
    """
    if command.count != DELIVERED:
        return Offset(command.iterator.offset + command.count if command.iterator.offset >= 0 else -1)
    return Offset(max(issued.offset, -1) + issued.delivered if issued is not None else -1)


def _is_repeated(issued: IssuedIterator, iterator: Iterator, position: Offset) -> bool:
    """True if the last change of the partition was the same commit."""
    done = issued.issue if issued.is_over else issued.after
    is_its_own = (issued.client_id, issued.life) == (iterator.client_id, iterator.life)
    return is_its_own and done == iterator.issue and max(issued.offset, -1) == position


def _settle(
    context: MachineContext,
    client: IteratorClient,
    key: IssuedKey,
    issued: IssuedIterator,
    position: Offset,
    now: Now,
    effects: GroupEffects,
) -> IteratorResponse:
    if position >= 0:
        store(context, OffsetKey(*key), CommittedOffset(position, NO_LEADER_EPOCH, "", now.wall_ms), effects)
        stored(context, key.group_id, now)
        issued = replace(issued, offset=position)
    issued = replace(issued, delivered=0)
    # Ended before the next step, so that this step can release a partition that must move to another client.
    context.issued.put(key, replace(issued, is_over=True), now, effects)
    client.step(now, effects)
    if not client.has(issued.topic_id, key.partition):
        return IteratorResponse(position=position)
    issued = replace(
        issued,
        generation=client.generation,
        issue=issued.issue + 1,
        after=issued.issue,
        expires_ms=now.wall_ms + issued.in_flight_ms,
    )
    context.issued.put(key, issued, now, effects)
    return IteratorResponse(given=_announced(context, key, issued, now, effects), position=position)


# Deliveries.


def deliver(context: MachineContext, command: DeliverIterator, now: Now, effects: GroupEffects) -> IteratorResponse:
    """Records that the client has delivered `count` messages of the iterator. This replaces an earlier record.

    From then on the iterator begins at the first of these messages. Its time in flight starts again, unless the
    partition must move to another client. Raises the errors of a commit, and ITERATOR_EXPIRED for an iterator that is
    not in flight.
    """
    iterator = command.iterator
    topic = _check_named(context, command)
    client = IteratorClient.find(context, command.group_id, command.client_id)
    key = IssuedKey(command.group_id, iterator.topic, iterator.partition)
    issued = _current(client, topic, iterator, context.issued.get(key))
    if not context.issued.left_ms(key, now):
        raise MillstreamError(
            ErrorCode.ITERATOR_EXPIRED,
            f"the iterator of {iterator.topic}-{iterator.partition} has expired; get a new one",
        )
    client.step(now, effects)
    issued = replace(issued, offset=iterator.offset, delivered=command.count)
    assert 0 <= issued.delivered <= issued.messages_max, "an iterator delivers no more messages than it has"
    if client.has(topic.topic_id, iterator.partition):
        issued = replace(issued, expires_ms=now.wall_ms + issued.in_flight_ms)
        context.issued.put(key, issued, now, effects)
    else:
        context.issued.note(key, issued, effects)
    return IteratorResponse(given=_announced(context, key, issued, now, effects))


# Listing and expiry.


def listed(context: MachineContext, command: ListIterators, now: Now) -> IteratorList:
    """Returns the iterators in flight of all clients or of one client. For one client this includes delivered iterators
    that it may still commit after their expiry. Raises INVALID_GROUP_ID, INVALID_REQUEST or GROUP_ID_NOT_FOUND."""
    check_names(command.group_id, command.client_id if command.client_id is not None else "all")
    group = context.groups.get(command.group_id)
    if not isinstance(group, ConsumerGroup):
        raise MillstreamError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} has no iterators.")
    is_own = command.client_id is not None
    given = (
        _given_iterator(context, key, issued, now)
        for key, issued in context.issued.of_group(command.group_id, command.client_id)
        if _is_held(group, key, issued)
    )
    return IteratorList(given=tuple(each for each in given if each.left_ms or (is_own and each.delivered)))


def _is_held(group: ConsumerGroup, key: IssuedKey, issued: IssuedIterator) -> bool:
    """True if the client of the iterator still has the partition. A client that left and joined again does not have
    it."""
    held = group.members.holding(member_id(issued.client_id)).held
    return not issued.is_over and key.partition in held.get(issued.topic_id, ())


def sweep(context: MachineContext, group_id: str, now: Now, effects: GroupEffects) -> None:
    """Removes unusable iterators: those of deleted topics, and expired ones whose client no longer has the
    partition."""
    group = context.groups[group_id]
    if not isinstance(group, ConsumerGroup):
        return
    gone = []
    for key, issued in context.issued.of_group(group_id):
        topic = context.topics.get(key.topic)
        is_gone = topic is None or topic.topic_id != issued.topic_id
        if is_gone or (not _is_held(group, key, issued) and not context.issued.left_ms(key, now)):
            gone.append(key)
    context.issued.drop(gone, effects)


def _not_owner(client: IteratorClient, topic: TopicInfo, partition: int) -> MillstreamError:
    return MillstreamError(
        ErrorCode.NOT_OWNER,
        f"client {client.client_id} does not have {topic.name}-{partition} in generation {client.generation} "
        f"of group {client.group.group_id}",
    )


def _invalid(detail: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_REQUEST, detail)
