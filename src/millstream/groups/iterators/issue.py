"""GetIterator, ListIterators, DeliverIterator and commits: what the coordinator does with iterators. docs/iterators.md
has the states.

Invariants: of a partition, a group has at most one iterator in flight, and it is with the client that has the partition
in the group. An iterator is issued anew only when the one before is over: committed, past its time, of an older
generation and the same client's, or of a client that no longer has the partition. Each issue is a record, and leaves
when that is durable, so what was once issued is known after a restart. What was handed on of an iterator is part of its
record, `0 <= handed <= messages_max` from its offset on, and ends with the iterator, however that ends.
"""

from msgspec.structs import replace

from millstream.groups.commands import CommitIterator, DeliverIterator, GetIterator, ListIterators
from millstream.groups.committed_offsets import committed, store, stored
from millstream.groups.consumer.group import ConsumerGroup
from millstream.groups.effects import Effects, Now
from millstream.groups.iterators.clients import IteratorClient, check_names
from millstream.groups.iterators.iterator import BEGINNING, END, MESSAGES_MAX, Iterator, member_id, told_of
from millstream.groups.iterators.records import IssuedIterator, IssuedKey
from millstream.groups.machine_context import MachineContext
from millstream.groups.records import OffsetKey
from millstream.groups.responses import CommittedOffset, GivenIterator, IteratorList, IteratorResponse
from millstream.groups.topic_image import TopicInfo
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import NO_LEADER_EPOCH

IN_FLIGHT_MIN_MS = 1_000
_BROKERS_CHOICE = -1
HANDED = -1
"""The count of a commit that is to cover what was handed on."""


def get(context: MachineContext, command: GetIterator, now: Now, effects: Effects) -> IteratorResponse:
    """The iterator of a partition that the client has: the one in flight, or the next one from where the group is.

    Raises INVALID_REQUEST, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC_OR_PARTITION, GROUP_MAX_SIZE_REACHED,
    and NOT_OWNER, which may come with the rebalance that makes the client the owner.
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
    return IteratorResponse(given=_give(context, key, issued, now, effects))


def _in_flight_ms(context: MachineContext, command: GetIterator) -> int:
    """How long the iterator is to be in flight; also looks at what else the request says. Raises INVALID_REQUEST."""
    settings = context.settings
    if command.messages_max < 1:
        raise _invalid("MaxMessages must be at least 1.")
    if command.start not in (BEGINNING, END):
        raise _invalid(f"Start must be {BEGINNING} for the beginning or {END} for the end.")
    if command.in_flight_ms == _BROKERS_CHOICE:
        return settings.iterator_in_flight_ms
    if not IN_FLIGHT_MIN_MS <= command.in_flight_ms <= settings.iterator_in_flight_max_ms:
        raise _invalid(
            f"InFlightMs must be {_BROKERS_CHOICE}, or {IN_FLIGHT_MIN_MS} to {settings.iterator_in_flight_max_ms}."
        )
    return command.in_flight_ms


def _topic(context: MachineContext, name: str, partition: int) -> TopicInfo:
    topic = context.topics.get(name)
    if topic is None or not 0 <= partition < topic.partitions:
        raise MillstreamError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of {name!r} to iterate over"
        )
    return topic


def _is_current(issued: IssuedIterator, client: IteratorClient, topic: TopicInfo, left_ms: int) -> bool:
    """Whether it is in flight with this client, and of the group's generation."""
    is_its_own = issued.client_id == client.client_id and issued.topic_id == topic.topic_id
    return is_its_own and not issued.is_over and issued.generation == client.generation and left_ms > 0


def _life(context: MachineContext, before: IssuedIterator | None, topic: TopicInfo) -> int:
    if before is not None and before.topic_id == topic.topic_id:
        return before.life
    return int.from_bytes(context.entropy.token(8), signed=True)


def _give(context: MachineContext, key: IssuedKey, issued: IssuedIterator, now: Now, effects: Effects) -> GivenIterator:
    """Hand it down to its server, and then to the client."""
    given = _given(context, key, issued, now)
    effects.told.append(told_of(given.iterator, given.left_ms))
    return given


def _given(context: MachineContext, key: IssuedKey, issued: IssuedIterator, now: Now) -> GivenIterator:
    return GivenIterator(_iterator(key, issued), context.issued.left_ms(key, now), issued.handed)


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


def commit(context: MachineContext, command: CommitIterator, now: Now, effects: Effects) -> IteratorResponse:
    """Store how far the client has read, and give it the next iterator if the partition stays its own.

    A commit whose answer was lost may be repeated, and is answered as before. One that comes late still counts, as long
    as the partition was not issued again and nobody else has it. Raises FOREIGN_ITERATOR, INVALID_REQUEST,
    UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC_OR_PARTITION, ITERATOR_SETTLED, NOT_OWNER and NOTHING_HANDED.
    """
    iterator = command.iterator
    topic = _check_named(context, command)
    client = IteratorClient.find(context, command.group_id, command.client_id)
    key = IssuedKey(command.group_id, iterator.topic, iterator.partition)
    issued = context.issued.get(key)
    position = _position(command, issued)
    if issued is not None and _is_repeated(issued, iterator, position):
        client.step(now, effects)
        given = None if issued.is_over else _give(context, key, issued, now, effects)
        return IteratorResponse(given=given, position=position)
    issued = _unsettled(client, topic, iterator, issued)
    if command.count == HANDED and not issued.handed:
        raise MillstreamError(
            ErrorCode.NOTHING_HANDED,
            f"nothing of {iterator.topic}-{iterator.partition} was handed on since it was last committed",
        )
    return _settle(context, client, key, issued, position, now, effects)


def _check_named(context: MachineContext, command: CommitIterator | DeliverIterator) -> TopicInfo:
    """The topic of the iterator that a client names as its own; raises what is wrong with the request alone."""
    iterator, count = command.iterator, command.count
    check_names(command.group_id, command.client_id)
    if (iterator.group_id, iterator.client_id) != (command.group_id, command.client_id):
        raise MillstreamError(
            ErrorCode.FOREIGN_ITERATOR,
            f"the iterator is that of client {iterator.client_id} in group {iterator.group_id}, "
            f"not of client {command.client_id} in group {command.group_id}",
        )
    is_handing = isinstance(command, DeliverIterator)
    if not is_handing <= count <= iterator.messages_max and (is_handing or count != HANDED):
        raise _invalid(
            f"Count must be {is_handing:d} to {iterator.messages_max}, which is what the iterator stands for."
        )
    if iterator.offset < 0 and count > 0:
        raise _invalid("Iterator has no offset yet: name the one that came with the messages.")
    topic = _topic(context, iterator.topic, iterator.partition)
    if topic.topic_id != iterator.topic_id:
        raise MillstreamError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {iterator.topic!r} was deleted since, and made anew"
        )
    return topic


def _unsettled(
    client: IteratorClient, topic: TopicInfo, iterator: Iterator, issued: IssuedIterator | None
) -> IssuedIterator:
    """What was issued, if that is this iterator and not over; raises NOT_OWNER or ITERATOR_SETTLED."""
    if not client.still_holds(iterator.topic_id, iterator.partition):
        raise _not_owner(client, topic, iterator.partition)
    if issued is None or issued.is_over or (issued.life, issued.issue) != (iterator.life, iterator.issue):
        raise MillstreamError(
            ErrorCode.ITERATOR_SETTLED,
            f"{iterator.topic}-{iterator.partition} was committed or issued again since; get its iterator.",
        )
    return issued


def _position(command: CommitIterator, issued: IssuedIterator | None) -> int:
    """Where the group goes on; -1 as long as that is not an offset. By what was handed on: behind that, or where a
    commit of it has put the group if nothing was handed on since."""
    if command.count != HANDED:
        return command.iterator.offset + command.count if command.iterator.offset >= 0 else -1
    return max(issued.offset, -1) + issued.handed if issued is not None else -1


def _is_repeated(issued: IssuedIterator, iterator: Iterator, position: int) -> bool:
    """Whether this very commit was done before, and nothing since."""
    done = issued.issue if issued.is_over else issued.after
    is_its_own = (issued.client_id, issued.life) == (iterator.client_id, iterator.life)
    return is_its_own and done == iterator.issue and max(issued.offset, -1) == position


def _settle(
    context: MachineContext,
    client: IteratorClient,
    key: IssuedKey,
    issued: IssuedIterator,
    position: int,
    now: Now,
    effects: Effects,
) -> IteratorResponse:
    if position >= 0:
        store(context, OffsetKey(*key), CommittedOffset(position, NO_LEADER_EPOCH, "", now.wall_ms), effects)
        stored(context, key.group_id, now)
        issued = replace(issued, offset=position)
    issued = replace(issued, handed=0)
    # Over before the next step, so that a partition that is to go to somebody else goes with it.
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
    return IteratorResponse(given=_give(context, key, issued, now, effects), position=position)


# What was handed on.


def deliver(context: MachineContext, command: DeliverIterator, now: Now, effects: Effects) -> IteratorResponse:
    """Note that the client has handed on so many messages of the iterator, in place of what was noted before.

    The iterator begins where they do from then on, and its time anew, unless the partition is to be another's. Raises
    what a commit raises, and ITERATOR_EXPIRED for one that is no longer in flight.
    """
    iterator = command.iterator
    topic = _check_named(context, command)
    client = IteratorClient.find(context, command.group_id, command.client_id)
    key = IssuedKey(command.group_id, iterator.topic, iterator.partition)
    issued = _unsettled(client, topic, iterator, context.issued.get(key))
    if not context.issued.left_ms(key, now):
        raise MillstreamError(
            ErrorCode.ITERATOR_EXPIRED,
            f"{iterator.topic}-{iterator.partition} is no longer in flight; get its iterator again",
        )
    client.step(now, effects)
    issued = replace(issued, offset=iterator.offset, handed=command.count)
    if client.has(topic.topic_id, iterator.partition):
        issued = replace(issued, expires_ms=now.wall_ms + issued.in_flight_ms)
        context.issued.put(key, issued, now, effects)
    else:
        context.issued.note(key, issued, effects)
    return IteratorResponse(given=_give(context, key, issued, now, effects))


# What there is.


def listed(context: MachineContext, command: ListIterators, now: Now) -> IteratorList:
    """What a client has in flight, or all clients; a client also what it handed on and may still commit, in flight or
    not. Raises INVALID_GROUP_ID, INVALID_REQUEST or GROUP_ID_NOT_FOUND."""
    check_names(command.group_id, command.client_id if command.client_id is not None else "all")
    group = context.groups.get(command.group_id)
    if not isinstance(group, ConsumerGroup):
        raise MillstreamError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} has no iterators.")
    is_own = command.client_id is not None
    given = (
        _given(context, key, issued, now)
        for key, issued in context.issued.of_group(command.group_id, command.client_id)
        if _is_held(group, key, issued)
    )
    return IteratorList(given=tuple(each for each in given if each.left_ms or (is_own and each.handed)))


def _is_held(group: ConsumerGroup, key: IssuedKey, issued: IssuedIterator) -> bool:
    """Whether whom it was issued to still has the partition: a client that has left, and is back, has not."""
    held = group.members.holding(member_id(issued.client_id)).held
    return not issued.is_over and key.partition in held.get(issued.topic_id, ())


def sweep(context: MachineContext, group_id: str, now: Now, effects: Effects) -> None:
    """Forget what nobody can use any more: iterators of topics that are gone, and of clients that are."""
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
