"""Iterators over HTTP, one call at a time: who reads is named by group and consumer, at any gateway."""

from millstream.gateway.failures import invalid
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.common_parameters import ConsumerParameters, EmptyBody, GroupParameters
from millstream.gateway.http.resources.event_json import shown
from millstream.gateway.http.resources.iterator_bodies import (
    CommittedIterator,
    DeliveryReport,
    DeliveryReported,
    IteratorBody,
    IteratorCommitBody,
    IteratorOptionsBody,
    IteratorRead,
    ListedIterators,
    MembershipView,
    ReadEvents,
    shown_iterator,
    shown_listed,
    shown_membership,
)
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import iterators
from millstream.gateway.operations.reads import ReadLimits
from millstream.gateway.rights import Right
from millstream.model.errors import ErrorCode
from millstream.model.names import TopicPartition
from millstream.sdk.connection.address import Address

# The group.


async def join(asked: WebRequest) -> MembershipView:
    """Be one of the group, whether it was one before or not."""
    of: ConsumerParameters = asked.parameters
    cluster = asked.site.clusters.get(of.cluster)
    return shown_membership(of, await iterators.join(cluster, of.group, of.consumer, cluster.timeout_s))


async def heartbeat(asked: WebRequest) -> MembershipView:
    """Be heard of."""
    of: ConsumerParameters = asked.parameters
    cluster = asked.site.clusters.get(of.cluster)
    return shown_membership(of, await iterators.heartbeat(cluster, of.group, of.consumer, cluster.timeout_s))


async def leave(asked: WebRequest) -> None:
    """What the consumer had goes to the others at once."""
    of: ConsumerParameters = asked.parameters
    cluster = asked.site.clusters.get(of.cluster)
    await iterators.leave(cluster, of.group, of.consumer, cluster.timeout_s)


# Iterators.


async def get_iterator(asked: WebRequest) -> IteratorBody:
    """The one in flight, if there is one; NOT_OWNER while the partition is not the consumer's."""
    of: ConsumerParameters = asked.parameters
    wanted: IteratorOptionsBody = asked.body
    cluster = asked.site.clusters.get(of.cluster)
    found = await iterators.get(
        cluster,
        of.group,
        of.consumer,
        TopicPartition(wanted.topic, wanted.partition),
        cluster.timeout_s,
        max_messages=wanted.max_messages,
        in_flight_ms=wanted.in_flight_ms,
        start=wanted.start,
    )
    return shown_iterator(found)


async def list_iterators(asked: WebRequest) -> ListedIterators:
    """What all consumers of a group have in flight."""
    of: GroupParameters = asked.parameters
    cluster = asked.site.clusters.get(of.cluster)
    found = await iterators.in_flight(cluster, of.group, None, cluster.timeout_s)
    return ListedIterators(group=of.group, iterators=[shown_listed(each) for each in found])


async def list_own_iterators(asked: WebRequest) -> ListedIterators:
    """What one consumer has in flight, with the iterators themselves."""
    of: ConsumerParameters = asked.parameters
    cluster = asked.site.clusters.get(of.cluster)
    found = await iterators.in_flight(cluster, of.group, of.consumer, cluster.timeout_s)
    return ListedIterators(group=of.group, iterators=[shown_listed(each) for each in found])


async def read_iterator(asked: WebRequest) -> ReadEvents:
    """From the leader of its partition, whoever the iterator names."""
    wanted: IteratorRead = asked.body
    cluster = asked.site.clusters.get(wanted.cluster)
    limits = ReadLimits(max_bytes=wanted.max_bytes, wait_s=wanted.wait)
    batch = await iterators.read(cluster, wanted.iterator.given, limits, cluster.timeout_s, asked.site.draining)
    asked.site.traffic.events_read += len(batch.messages)
    server = Address(wanted.iterator.host, wanted.iterator.port)
    return ReadEvents(
        iterator=shown_iterator(batch.iterator, server),
        events=[shown(message, wanted.format) for message in batch.messages],
        end_offset=batch.end_offset,
        next=None if batch.following is None else shown_iterator(batch.following, server),
    )


async def deliver_iterator(asked: WebRequest) -> DeliveryReported:
    """Note what was handed on; it replaces what was noted before."""
    of: ConsumerParameters = asked.parameters
    handing: DeliveryReport = asked.body
    cluster = asked.site.clusters.get(of.cluster)
    left_s = await iterators.deliver(
        cluster, of.group, of.consumer, handing.iterator.given, handing.count, cluster.timeout_s
    )
    return DeliveryReported(left_s=left_s)


async def commit_iterator(asked: WebRequest) -> CommittedIterator:
    """What was read of it is finished."""
    of: ConsumerParameters = asked.parameters
    commit: IteratorCommitBody = asked.body
    if (commit.count is None) != commit.handed:
        raise invalid("count", "say how much of it was read: `count`, or `handed`, not both")
    cluster = asked.site.clusters.get(of.cluster)
    done = await iterators.commit(
        cluster, of.group, of.consumer, commit.iterator.given, commit.count, cluster.timeout_s
    )
    return CommittedIterator(
        position=done.position, next=None if done.following is None else shown_iterator(done.following)
    )


_ERRORS = (ErrorCode.UNKNOWN_CLUSTER, ErrorCode.INVALID_GROUP_ID)
_OVER = (
    *_ERRORS,
    ErrorCode.INVALID_ITERATOR,
    ErrorCode.NOT_OWNER,
    ErrorCode.ITERATOR_EXPIRED,
    ErrorCode.ITERATOR_SETTLED,
)
_CONSUMER = "/v1/groups/{group}/consumers/{consumer}"
_GIVEN = {"topic": "orders", "partition": 0, "token": "AAAA"}

OPERATIONS = (
    WebOperation(
        "GET",
        "/v1/groups/{group}/iterators",
        "listIterators",
        "Show what consumers of a group have in flight",
        Right.GROUPS_READ,
        list_iterators,
        parameters=GroupParameters,
        answer=ListedIterators,
        concerns="group",
        group="Groups",
        errors=(ErrorCode.UNKNOWN_CLUSTER, ErrorCode.GROUP_ID_NOT_FOUND),
        examples=(Example("A group", "/v1/groups/billing/iterators"),),
    ),
    WebOperation(
        "POST",
        _CONSUMER + "/heartbeat",
        "heartbeat",
        "Keep a consumer in its group",
        Right.GROUPS_WRITE,
        heartbeat,
        parameters=ConsumerParameters,
        answer=MembershipView,
        concerns="group",
        group="Iterators",
        errors=(*_ERRORS, ErrorCode.UNKNOWN_MEMBER_ID),
        examples=(Example("A consumer", "/v1/groups/billing/consumers/a/heartbeat"),),
    ),
    WebOperation(
        "POST",
        _CONSUMER + "/iterators",
        "getIterator",
        "Get the iterator of a partition",
        Right.GROUPS_WRITE,
        get_iterator,
        parameters=ConsumerParameters,
        body=IteratorOptionsBody,
        answer=IteratorBody,
        concerns="group",
        group="Iterators",
        errors=(
            *_ERRORS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NOT_OWNER,
        ),
        examples=(Example("A partition", "/v1/groups/billing/consumers/a/iterators", {"topic": "orders"}),),
        details="""\
The right to read some messages of a partition for the group: the one in flight, if there is one, or a new one from
where the group is. The first call for a topic makes the consumer one of its readers; until the partition is its own,
the answer is NOT_OWNER.""",
    ),
    WebOperation(
        "GET",
        _CONSUMER + "/iterators",
        "listOwnIterators",
        "Show what a consumer has in flight",
        Right.GROUPS_WRITE,
        list_own_iterators,
        parameters=ConsumerParameters,
        answer=ListedIterators,
        concerns="group",
        group="Iterators",
        errors=(*_ERRORS, ErrorCode.GROUP_ID_NOT_FOUND),
        examples=(Example("A consumer", "/v1/groups/billing/consumers/a/iterators"),),
        details="With the iterators themselves, so that whoever has lost its own can go on.",
    ),
    WebOperation(
        "POST",
        "/v1/iterators/read",
        "readIterator",
        "Read with an iterator",
        Right.MESSAGES_READ,
        read_iterator,
        parameters=EmptyBody,
        body=IteratorRead,
        answer=ReadEvents,
        concerns="topic",
        group="Iterators",
        errors=(ErrorCode.UNKNOWN_CLUSTER, *_OVER[2:], ErrorCode.FENCED_ITERATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        examples=(Example("What is there now", "/v1/iterators/read", {"iterator": _GIVEN, "wait": 0}),),
        details="""\
The messages, the iterator that they belong to, for a commit, and the one that follows. With nothing there, it is waited
for the first. The gateway reads from the leader of the partition, whatever server the iterator names.""",
    ),
    WebOperation(
        "POST",
        _CONSUMER + "/deliver",
        "deliverIterator",
        "Note what was handed on of an iterator",
        Right.GROUPS_WRITE,
        deliver_iterator,
        parameters=ConsumerParameters,
        body=DeliveryReport,
        answer=DeliveryReported,
        concerns="group",
        group="Iterators",
        errors=_OVER,
        examples=(Example("One", "/v1/groups/billing/consumers/a/deliver", {"iterator": _GIVEN, "count": 1}),),
    ),
    WebOperation(
        "POST",
        _CONSUMER + "/commit",
        "commitIterator",
        "Commit what was read with an iterator",
        Right.GROUPS_WRITE,
        commit_iterator,
        parameters=ConsumerParameters,
        body=IteratorCommitBody,
        answer=CommittedIterator,
        concerns="group",
        group="Iterators",
        errors=(*_OVER, ErrorCode.NOTHING_HANDED),
        examples=(
            Example(
                "What was handed on",
                "/v1/groups/billing/consumers/a/commit",
                {"iterator": _GIVEN, "handed": True},
            ),
        ),
        details="So many places of the log, from the iterator's offset on, or what was handed on of it.",
    ),
    WebOperation(
        "PUT",
        _CONSUMER,
        "joinGroup",
        "Let a consumer join its group",
        Right.GROUPS_WRITE,
        join,
        parameters=ConsumerParameters,
        answer=MembershipView,
        concerns="group",
        group="Iterators",
        errors=_ERRORS,
        examples=(Example("A consumer", "/v1/groups/billing/consumers/a"),),
        details="Whoever is in it already stays; a poll does it by itself.",
    ),
    WebOperation(
        "DELETE",
        _CONSUMER,
        "leaveGroup",
        "Let a consumer leave its group",
        Right.GROUPS_WRITE,
        leave,
        parameters=ConsumerParameters,
        status=204,
        concerns="group",
        group="Groups",
        errors=(ErrorCode.UNKNOWN_CLUSTER, ErrorCode.UNKNOWN_MEMBER_ID),
        examples=(Example("A consumer", "/v1/groups/billing/consumers/a"),),
    ),
)
