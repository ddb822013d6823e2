"""How far groups are: shown, set, taken elsewhere and forgotten."""

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.failures import invalid
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.common_parameters import GroupParameters, Offset, Partition, TopicName
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import groups
from millstream.gateway.operations.clusters import ServedCluster
from millstream.gateway.operations.reads import LATEST, parse_places, parse_time_ms
from millstream.gateway.operations.topics import find_offsets
from millstream.gateway.rights import Right
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset


class GroupOffset(msgspec.Struct, kw_only=True):
    """`lag` is how many messages are behind it, null where that is not known."""

    topic: str
    partition: int
    offset: int
    metadata: str
    lag: int | None


class GroupOffsets(msgspec.Struct, kw_only=True):
    group: str
    offsets: list[GroupOffset]


class NewOffset(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    topic: TopicName
    partition: Partition
    offset: Annotated[Offset, Meta(description="The next message that the group will read.")]
    metadata: str = ""


class NewOffsets(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a group shall go on. That is for groups whose members are away."""

    offsets: Annotated[list[NewOffset], Meta(min_length=1, max_length=10_000)]


class Reset(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a group is taken in a topic: to an `offset` or a `time`, never beyond what is there."""

    topic: TopicName
    offset: Annotated[
        str | int | None, Meta(description="`beginning`, `latest`, an offset, or one for each, such as `0:12,1:40`.")
    ] = None
    time: Annotated[
        str | int | None,
        Meta(description="The first message at or after this: `2025-01-31T12:00:00Z`, milliseconds, or `10m` ago."),
    ] = None
    partitions: Annotated[list[Partition], Meta(max_length=10_000, description="Only these; all without any.")] = (
        msgspec.field(default_factory=list)
    )
    validate_only: Annotated[bool, Meta(description="Only say where that would be.")] = False


class ResetOffsets(msgspec.Struct, kw_only=True):
    """Where the group goes on, by partition."""

    group: str
    topic: str
    offsets: dict[str, int]


class GroupOffsetParameters(GroupParameters, kw_only=True):
    """Which of its offsets are meant; all without a topic."""

    topic: TopicName | None = None
    partition: Partition | None = None


async def get_group_offsets(asked: WebRequest) -> GroupOffsets:
    """What it has committed, with what is behind that; empty where it has committed nothing."""
    parameters: GroupOffsetParameters = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    found = await groups.group_offsets(cluster, parameters.group, (), cluster.timeout_s)
    wanted = {where: each for where, each in sorted(found.items()) if _is_wanted(where, parameters)}
    ends = await _ends(cluster, wanted)
    rows = [
        GroupOffset(
            topic=where.topic,
            partition=where.partition,
            offset=each.offset,
            metadata=each.metadata,
            lag=max(0, ends[where] - each.offset) if where in ends else None,
        )
        for where, each in wanted.items()
    ]
    return GroupOffsets(group=parameters.group, offsets=rows)


def _is_wanted(where: TopicPartition, parameters: GroupOffsetParameters) -> bool:
    is_topic = parameters.topic is None or where.topic == parameters.topic
    return is_topic and (parameters.partition is None or where.partition == parameters.partition)


async def _ends(cluster: ServedCluster, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where these partitions end; without those of topics that cannot tell, since they were deleted, say."""
    ends: dict[TopicPartition, int] = {}
    for topic, rows in groupby(places, key=lambda where: where.topic):
        numbers = [where.partition for where in rows]
        try:
            found = await find_offsets(cluster, topic, numbers, LATEST, cluster.timeout_s)
        except MillstreamError:
            continue
        ends |= {TopicPartition(topic, number): listed.offset for number, listed in found.items()}
    return ends


async def set_group_offsets(asked: WebRequest) -> GroupOffsets:
    """UNKNOWN_MEMBER_ID while it has members."""
    parameters: GroupParameters = asked.parameters
    new: NewOffsets = asked.body
    cluster = asked.site.clusters.get(parameters.cluster)
    rows = {
        TopicPartition(each.topic, each.partition): CommittedOffset(each.offset, metadata=each.metadata)
        for each in new.offsets
    }
    await groups.commit_offsets(cluster, parameters.group, rows, cluster.timeout_s)
    asked.parameters = GroupOffsetParameters(cluster=parameters.cluster, group=parameters.group)
    return await get_group_offsets(asked)


async def reset_group_offsets(asked: WebRequest) -> ResetOffsets:
    """UNKNOWN_MEMBER_ID while it has members."""
    parameters: GroupParameters = asked.parameters
    wanted: Reset = asked.body
    if (wanted.offset is None) == (wanted.time is None):
        raise invalid("offset", "say where: an offset or a time, and not both")
    cluster = asked.site.clusters.get(parameters.cluster)
    is_time = wanted.offset is None
    found = await groups.reset_offsets(
        cluster,
        parameters.group,
        wanted.topic,
        wanted.partitions,
        parse_time_ms(str(wanted.time), asked.site.clock.wall_ms()) if is_time else parse_places(str(wanted.offset)),
        cluster.timeout_s,
        is_time=is_time,
        validate_only=wanted.validate_only,
    )
    offsets = {str(number): offset for number, offset in sorted(found.items())}
    return ResetOffsets(group=parameters.group, topic=wanted.topic, offsets=offsets)


async def delete_group_offsets(asked: WebRequest) -> None:
    """In a topic, or in one partition of it; GROUP_SUBSCRIBED_TO_TOPIC while its members read that, GROUP_ID_NOT_FOUND
    for a group that is not there."""
    parameters: GroupOffsetParameters = asked.parameters
    if parameters.topic is None:
        raise invalid("topic", "it is missing; DELETE of the group itself forgets everything")
    cluster = asked.site.clusters.get(parameters.cluster)
    found = await groups.group_offsets(cluster, parameters.group, (), cluster.timeout_s)
    places = [where for where in found if _is_wanted(where, parameters)]
    if not found:
        await groups.describe_group(cluster, parameters.group, cluster.timeout_s)
    await groups.delete_offsets(cluster, parameters.group, places, cluster.timeout_s)


_ERRORS = (ErrorCode.UNKNOWN_CLUSTER, ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND)

OPERATIONS = (
    WebOperation(
        "PUT",
        "/v1/groups/{group}/offsets",
        "setGroupOffsets",
        "Set where a group goes on",
        Right.GROUPS_WRITE,
        set_group_offsets,
        parameters=GroupParameters,
        body=NewOffsets,
        answer=GroupOffsets,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.UNKNOWN_MEMBER_ID),
        examples=(
            Example(
                "From the beginning",
                "/v1/groups/reports/offsets",
                {"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]},
            ),
        ),
    ),
    WebOperation(
        "GET",
        "/v1/groups/{group}/offsets",
        "getGroupOffsets",
        "Show how far a group is",
        Right.GROUPS_READ,
        get_group_offsets,
        parameters=GroupOffsetParameters,
        answer=GroupOffsets,
        concerns="group",
        group="Groups",
        errors=_ERRORS,
        examples=(Example("A group", "/v1/groups/reports/offsets"),),
    ),
    WebOperation(
        "DELETE",
        "/v1/groups/{group}/offsets",
        "deleteGroupOffsets",
        "Forget where a group was in a topic",
        Right.GROUPS_WRITE,
        delete_group_offsets,
        parameters=GroupOffsetParameters,
        status=204,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        examples=(Example("In a topic", "/v1/groups/reports/offsets?topic=orders"),),
    ),
    WebOperation(
        "POST",
        "/v1/groups/{group}/offsets",
        "resetGroupOffsets",
        "Take a group to a place in a topic",
        Right.GROUPS_WRITE,
        reset_group_offsets,
        parameters=GroupParameters,
        body=Reset,
        answer=ResetOffsets,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.INVALID_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_MEMBER_ID),
        examples=(Example("To the end", "/v1/groups/reports/offsets", {"topic": "orders", "offset": "latest"}),),
    ),
)
