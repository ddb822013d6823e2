"""Consumers of a group over HTTP: whoever names group and consumer reads on where the group is, at any gateway."""

import msgspec

from millstream.gateway.failures import invalid
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.common_parameters import ClusterName, ConsumerName, EmptyBody, GroupName
from millstream.gateway.http.resources.read_parameters import ReadParameters
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import group_consumers
from millstream.gateway.operations.clusters import DEFAULT, ServedCluster
from millstream.gateway.operations.reads import BEGINNING, LATEST, ReadLimits
from millstream.gateway.rights import Right
from millstream.model.errors import ErrorCode
from millstream.records.message import Message


class ConsumerCommit(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whose messages are finished: all that this consumer was handed last."""

    group: GroupName
    consumer: ConsumerName
    cluster: ClusterName = DEFAULT


class CommittedPosition(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    offset: int


class Committed(msgspec.Struct, kw_only=True):
    """Where the group goes on, in the partitions of which something was committed."""

    group: str
    consumer: str
    offsets: list[CommittedPosition]


async def poll_in_group(cluster: ServedCluster, parameters: ReadParameters) -> list[Message]:
    """Messages for this consumer: those that it was handed last, unless they are committed, or the next."""
    assert parameters.group is not None
    assert parameters.consumer is not None
    for name in ("partition", "time"):
        if getattr(parameters, name) is not None:
            raise invalid(name, "in a group the group decides what is read")
    start = BEGINNING if parameters.offset is None else str(parameters.offset)
    if start not in (BEGINNING, LATEST):
        raise invalid("offset", "a group keeps the place itself; say beginning or latest, for where it has none yet")
    polled = await group_consumers.poll(
        cluster,
        [parameters.topic],
        parameters.group,
        parameters.consumer,
        ReadLimits(parameters.max_messages, parameters.max_bytes, parameters.wait),
        auto_commit=parameters.auto_commit,
        start=start,
    )
    return polled.messages


async def post_offset(asked: WebRequest) -> Committed:
    """Commit what the consumer was handed last."""
    wanted: ConsumerCommit = asked.body
    cluster = asked.site.clusters.get(wanted.cluster)
    found = await group_consumers.commit(cluster, wanted.group, wanted.consumer)
    places = [
        CommittedPosition(topic=topic, partition=partition, offset=offset)
        for (topic, partition), offset in sorted(found.items())
    ]
    return Committed(group=wanted.group, consumer=wanted.consumer, offsets=places)


POST_OFFSET = WebOperation(
    "POST",
    "/offset",
    "postOffset",
    "Commit what a consumer was handed last",
    Right.GROUPS_WRITE,
    post_offset,
    parameters=EmptyBody,
    body=ConsumerCommit,
    answer=Committed,
    concerns="group",
    group="Events",
    errors=(ErrorCode.UNKNOWN_CLUSTER, ErrorCode.INVALID_GROUP_ID, ErrorCode.UNKNOWN_MEMBER_ID),
    examples=(Example("A consumer", "/offset", {"group": "billing", "consumer": "a"}),),
    details="""\
The group goes on behind the messages that the consumer was handed last, by whichever gateway. Those that another
consumer has taken over meanwhile are left out: they come again there.""",
)
