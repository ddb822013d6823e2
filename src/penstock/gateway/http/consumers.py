"""Consumers of a group over HTTP: whoever names group and consumer reads on where the group is, at any gateway."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.gateway import consuming
from penstock.gateway.clusters import DEFAULT, Cluster
from penstock.gateway.failures import invalid
from penstock.gateway.http.asked import Asked
from penstock.gateway.http.named import ClusterName, GroupName, Nothing, OfGroup
from penstock.gateway.http.read_parameters import ReadParameters
from penstock.gateway.http.table import Example, Operation
from penstock.gateway.reading import BEGINNING, LATEST, Limits
from penstock.gateway.rights import Right
from penstock.model.errors import ErrorCode
from penstock.records.message import Message
from penstock.sdk.iterating.requests import ListedIterator

ConsumerName = Annotated[str, Meta(min_length=1, max_length=8191, description="Who reads, in the group.")]


class Commit(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whose messages are finished: all that this consumer was handed last."""

    group: GroupName
    consumer: ConsumerName
    cluster: ClusterName = DEFAULT


class CommittedPlace(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    offset: int


class Committed(msgspec.Struct, kw_only=True):
    """Where the group goes on, in the partitions of which something was committed."""

    group: str
    consumer: str
    offsets: list[CommittedPlace]


class OfConsumer(OfGroup, kw_only=True):
    consumer: ConsumerName


class ShownIterator(msgspec.Struct, kw_only=True):
    """What a consumer has in flight: from `offset` on so many places of the log were handed out."""

    consumer: str
    topic: str
    partition: int
    offset: int
    generation: int
    left_s: float
    handed: int


class ShownIterators(msgspec.Struct, kw_only=True):
    group: str
    iterators: list[ShownIterator]


async def poll_in_group(cluster: Cluster, parameters: ReadParameters) -> list[Message]:
    """Messages for this consumer: those that it was handed last, unless they are committed, or the next."""
    assert parameters.group is not None
    assert parameters.consumer is not None
    for name in ("partition", "time"):
        if getattr(parameters, name) is not None:
            raise invalid(name, "in a group the group decides what is read")
    start = BEGINNING if parameters.offset is None else str(parameters.offset)
    if start not in (BEGINNING, LATEST):
        raise invalid("offset", "a group keeps the place itself; say beginning or latest, for where it has none yet")
    polled = await consuming.poll(
        cluster,
        [parameters.topic],
        parameters.group,
        parameters.consumer,
        Limits(parameters.max_messages, parameters.max_bytes, parameters.wait),
        auto_commit=parameters.auto_commit,
        start=start,
    )
    return polled.messages


async def post_offset(asked: Asked) -> Committed:
    """Commit what the consumer was handed last."""
    wanted: Commit = asked.body
    cluster = asked.site.clusters.get(wanted.cluster)
    found = await consuming.commit(cluster, wanted.group, wanted.consumer)
    places = [
        CommittedPlace(topic=topic, partition=partition, offset=offset)
        for (topic, partition), offset in sorted(found.items())
    ]
    return Committed(group=wanted.group, consumer=wanted.consumer, offsets=places)


async def leave(asked: Asked) -> None:
    """What the consumer had goes to the others at once."""
    parameters: OfConsumer = asked.parameters
    await consuming.leave(asked.site.clusters.get(parameters.cluster), parameters.group, parameters.consumer)


async def list_iterators(asked: Asked) -> ShownIterators:
    """What all consumers of a group have in flight."""
    parameters: OfGroup = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    found = await consuming.in_flight(cluster, parameters.group)
    return ShownIterators(group=parameters.group, iterators=[_shown(each) for each in found])


def _shown(listed: ListedIterator) -> ShownIterator:
    return ShownIterator(
        consumer=listed.client_id,
        topic=listed.where.topic,
        partition=listed.where.partition,
        offset=listed.offset,
        generation=listed.generation,
        left_s=listed.left_s,
        handed=listed.handed,
    )


POST_OFFSET = Operation(
    "POST",
    "/offset",
    "postOffset",
    "Commit what a consumer was handed last",
    Right.GROUPS_WRITE,
    post_offset,
    parameters=Nothing,
    body=Commit,
    answer=Committed,
    concerns="group",
    group="Events",
    errors=(ErrorCode.UNKNOWN_CLUSTER, ErrorCode.INVALID_GROUP_ID, ErrorCode.UNKNOWN_MEMBER_ID),
    examples=(Example("A consumer", "/offset", {"group": "billing", "consumer": "a"}),),
    details="""\
The group goes on behind the messages that the consumer was handed last, by whichever gateway. Those that another
consumer has taken over meanwhile are left out: they come again there.""",
)

OPERATIONS = (
    Operation(
        "GET",
        "/v1/groups/{group}/iterators",
        "listIterators",
        "Show what consumers of a group have in flight",
        Right.GROUPS_READ,
        list_iterators,
        parameters=OfGroup,
        answer=ShownIterators,
        concerns="group",
        group="Groups",
        errors=(ErrorCode.UNKNOWN_CLUSTER, ErrorCode.GROUP_ID_NOT_FOUND),
        examples=(Example("A group", "/v1/groups/billing/iterators"),),
    ),
    Operation(
        "DELETE",
        "/v1/groups/{group}/consumers/{consumer}",
        "leaveGroup",
        "Let a consumer leave its group",
        Right.GROUPS_WRITE,
        leave,
        parameters=OfConsumer,
        status=204,
        concerns="group",
        group="Groups",
        errors=(ErrorCode.UNKNOWN_CLUSTER, ErrorCode.UNKNOWN_MEMBER_ID),
        examples=(Example("A consumer", "/v1/groups/billing/consumers/a"),),
    ),
)
