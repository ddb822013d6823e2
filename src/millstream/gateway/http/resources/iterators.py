"""Implements the iterator calls over HTTP. Any gateway can serve each call, because it names group and consumer."""

from millstream.gateway.failures import contradictory
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.common_parameters import ConsumerParameters, EmptyBody, GroupParameters
from millstream.gateway.http.resources.event_json import answer_limit, building, shown
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
from millstream.gateway.http.resources.unit_fields import in_flight_ms, read_bytes, wait_s
from millstream.gateway.http.responses import WebResponse, encode
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import iterators
from millstream.gateway.operations.reads import ReadLimits, group_start
from millstream.model.errors import ErrorCode
from millstream.model.names import TopicPartition
from millstream.model.rights import Right
from millstream.sdk.connection.address import Address

# Membership.


async def join(request: WebRequest) -> MembershipView:
    """Join the group, or stay in it."""
    of: ConsumerParameters = request.parameters
    cluster = request.site.clusters.get(of.cluster)
    return shown_membership(of, await iterators.join(cluster, of.group, of.consumer, cluster.timeout_s))


async def heartbeat(request: WebRequest) -> MembershipView:
    """Send a heartbeat for the consumer."""
    of: ConsumerParameters = request.parameters
    cluster = request.site.clusters.get(of.cluster)
    return shown_membership(of, await iterators.heartbeat(cluster, of.group, of.consumer, cluster.timeout_s))


async def leave(request: WebRequest) -> None:
    """Leave the group. The next request of another member gets the partitions.

    A waiting poll gets them at its next heartbeat.
    """
    of: ConsumerParameters = request.parameters
    cluster = request.site.clusters.get(of.cluster)
    await iterators.leave(cluster, of.group, of.consumer, cluster.timeout_s)


# Iterators.


async def get_iterator(request: WebRequest) -> IteratorBody:
    """Return the iterator in flight, or a new one. Raises NOT_OWNER while the consumer does not own the partition."""
    of: ConsumerParameters = request.parameters
    wanted: IteratorOptionsBody = request.body
    cluster = request.site.clusters.get(of.cluster)
    found = await iterators.get(
        cluster,
        of.group,
        of.consumer,
        TopicPartition(wanted.topic, wanted.partition),
        cluster.timeout_s,
        max_messages=wanted.max_messages,
        in_flight_ms=in_flight_ms(wanted.in_flight_ms),
        start=group_start(wanted.start, "start"),
    )
    return shown_iterator(found)


async def list_iterators(request: WebRequest) -> ListedIterators:
    """Return the iterators in flight of all consumers of a group."""
    of: GroupParameters = request.parameters
    cluster = request.site.clusters.get(of.cluster)
    found = await iterators.in_flight(cluster, of.group, None, cluster.timeout_s)
    return ListedIterators(group=of.group, iterators=[shown_listed(each) for each in found])


async def list_own_iterators(request: WebRequest) -> ListedIterators:
    """Return the iterators in flight of one consumer, with their tokens."""
    of: ConsumerParameters = request.parameters
    cluster = request.site.clusters.get(of.cluster)
    found = await iterators.in_flight(cluster, of.group, of.consumer, cluster.timeout_s)
    return ListedIterators(group=of.group, iterators=[shown_listed(each) for each in found])


async def read_iterator(request: WebRequest) -> WebResponse:
    """Read from the leader of the partition. The server address in the iterator is ignored."""
    wanted: IteratorRead = request.body
    cluster = request.site.clusters.get(wanted.cluster)
    limits = ReadLimits(
        max_bytes=read_bytes(wanted.max_bytes),
        wait_s=wait_s(wanted.wait),
        on_bad_batch=wanted.on_bad_batch,
        answer=answer_limit(request.site.budget, wanted.format),
    )
    batch = await iterators.read(cluster, wanted.iterator.given, limits, cluster.timeout_s, request.site.draining)
    request.site.traffic.events_read += len(batch.messages)
    server = Address(wanted.iterator.host, wanted.iterator.port)
    with building(request, batch.messages):
        found = ReadEvents(
            iterator=shown_iterator(batch.iterator, server),
            events=[shown(message, wanted.format) for message in batch.messages],
            end_offset=batch.end_offset,
            next=None if batch.following is None else shown_iterator(batch.following, server),
        )
        return WebResponse(encode(found))


async def deliver_iterator(request: WebRequest) -> DeliveryReported:
    """Record how many offsets were delivered. The new number replaces the earlier one."""
    of: ConsumerParameters = request.parameters
    handing: DeliveryReport = request.body
    cluster = request.site.clusters.get(of.cluster)
    left_s = await iterators.deliver(
        cluster, of.group, of.consumer, handing.iterator.given, handing.count, cluster.timeout_s
    )
    return DeliveryReported(left_s=left_s)


async def commit_iterator(request: WebRequest) -> CommittedIterator:
    """Commit the messages that were processed."""
    of: ConsumerParameters = request.parameters
    commit: IteratorCommitBody = request.body
    if (commit.count is None) != commit.delivered:
        raise contradictory("count", "set either `count` or `delivered`, not both")
    cluster = request.site.clusters.get(of.cluster)
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
        "List the iterators in flight of a group",
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
        "Send a heartbeat for a consumer",
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
An iterator is the right to read some messages of a partition for the group. Returns the one in flight, or a new one at
the group's position. The first call for a topic subscribes the consumer to it. The answer is NOT_OWNER until the
consumer owns the partition.""",
    ),
    WebOperation(
        "GET",
        _CONSUMER + "/iterators",
        "listOwnIterators",
        "List the iterators in flight of a consumer",
        Right.GROUPS_WRITE,
        list_own_iterators,
        parameters=ConsumerParameters,
        answer=ListedIterators,
        concerns="group",
        group="Iterators",
        errors=(*_ERRORS, ErrorCode.GROUP_ID_NOT_FOUND),
        examples=(Example("A consumer", "/v1/groups/billing/consumers/a/iterators"),),
        details="Includes the tokens, so that a restarted consumer can continue with its iterators.",
    ),
    WebOperation(
        "POST",
        "/v1/iterators/read",
        "readIterator",
        "Read messages with an iterator",
        Right.MESSAGES_READ,
        read_iterator,
        parameters=EmptyBody,
        body=IteratorRead,
        answer=ReadEvents,
        concerns="topic",
        group="Iterators",
        errors=(
            ErrorCode.UNKNOWN_CLUSTER,
            *_OVER[2:],
            ErrorCode.FENCED_ITERATOR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNDECODABLE_BATCH,
            ErrorCode.RESPONSE_TOO_LARGE,
        ),
        examples=(Example("Without waiting", "/v1/iterators/read", {"iterator": _GIVEN, "wait": 0}),),
        details="""\
Returns the messages, the iterator to commit and the next iterator. If there are no messages, the gateway waits for the
first. It reads from the leader of the partition and ignores the server address in the iterator. `next` is null after a
rebalance, and if the answer ends before messages that cannot be returned: commit what was read to get the next one.""",
    ),
    WebOperation(
        "POST",
        _CONSUMER + "/deliver",
        "deliverIterator",
        "Report what was delivered of an iterator",
        Right.GROUPS_WRITE,
        deliver_iterator,
        parameters=ConsumerParameters,
        body=DeliveryReport,
        answer=DeliveryReported,
        concerns="group",
        group="Iterators",
        errors=_OVER,
        examples=(Example("One offset", "/v1/groups/billing/consumers/a/deliver", {"iterator": _GIVEN, "count": 1}),),
    ),
    WebOperation(
        "POST",
        _CONSUMER + "/commit",
        "commitIterator",
        "Commit an iterator",
        Right.GROUPS_WRITE,
        commit_iterator,
        parameters=ConsumerParameters,
        body=IteratorCommitBody,
        answer=CommittedIterator,
        concerns="group",
        group="Iterators",
        errors=(*_OVER, ErrorCode.NOTHING_DELIVERED),
        examples=(
            Example(
                "What was delivered",
                "/v1/groups/billing/consumers/a/commit",
                {"iterator": _GIVEN, "delivered": True},
            ),
        ),
        details="Commits `count` offsets from the iterator's offset on, or with `delivered` the reported delivery.",
    ),
    WebOperation(
        "PUT",
        _CONSUMER,
        "joinGroup",
        "Join a group",
        Right.GROUPS_WRITE,
        join,
        parameters=ConsumerParameters,
        answer=MembershipView,
        concerns="group",
        group="Iterators",
        errors=_ERRORS,
        examples=(Example("A consumer", "/v1/groups/billing/consumers/a"),),
        details="A consumer that is already a member stays one. A poll joins automatically.",
    ),
    WebOperation(
        "DELETE",
        _CONSUMER,
        "leaveGroup",
        "Leave a group",
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
