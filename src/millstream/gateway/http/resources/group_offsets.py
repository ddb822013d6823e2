"""Reads, sets, resets and deletes the committed offsets of groups over HTTP."""

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.failures import contradictory, missing
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.common_parameters import (
    START_WORDS_TEXT,
    GroupParameters,
    Offset,
    Partition,
    TopicName,
)
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import groups
from millstream.gateway.operations.clusters import ServedCluster
from millstream.gateway.operations.reads import parse_positions, parse_time_ms
from millstream.gateway.operations.topics import find_offsets
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.rights import Right
from millstream.model.start_words import LATEST
from millstream.sdk.admin.group_results import CommittedOffset


class GroupOffset(msgspec.Struct, kw_only=True):
    """A committed offset. `lag` is the number of offsets up to the log end, null if unknown."""

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
    offset: Annotated[Offset, Meta(description="Offset of the next message that the group reads.")]
    metadata: str = ""


class NewOffsets(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The offsets to commit for a group. The group must have no members."""

    offsets: Annotated[list[NewOffset], Meta(min_length=1, max_length=10_000)]


class Reset(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The position to which a group is moved in a topic: an `offset` or a `time`, limited to the range of the log."""

    topic: TopicName
    offset: Annotated[
        str | int | None, Meta(description=f"{START_WORDS_TEXT}, an offset, or an offset per partition: `0:12,1:40`.")
    ] = None
    time: Annotated[
        str | int | None,
        Meta(
            description="The first message at or after `2025-01-31T12:00:00Z`, milliseconds since 1970, or `10m` ago."
        ),
    ] = None
    partitions: Annotated[list[Partition], Meta(max_length=10_000, description="Partitions. Default: all.")] = (
        msgspec.field(default_factory=list)
    )
    validate_only: Annotated[bool, Meta(description="Return the new offsets without committing them.")] = False


class ResetOffsets(msgspec.Struct, kw_only=True):
    """The committed offsets after the reset, by partition."""

    group: str
    topic: str
    offsets: dict[str, int]


class GroupOffsetParameters(GroupParameters, kw_only=True):
    """Selects offsets of a group. Default: all topics and partitions."""

    topic: TopicName | None = None
    partition: Partition | None = None


async def get_group_offsets(request: WebRequest) -> GroupOffsets:
    """Return the group's committed offsets and lags; empty if it has committed nothing."""
    parameters: GroupOffsetParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
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
    """Return the log ends of these partitions.

    Topics whose ends cannot be read are left out, for example deleted ones.
    """
    ends: dict[TopicPartition, int] = {}
    for topic, rows in groupby(places, key=lambda where: where.topic):
        numbers = [where.partition for where in rows]
        try:
            found = await find_offsets(cluster, topic, numbers, LATEST, cluster.timeout_s)
        except MillstreamError:
            continue
        ends |= {TopicPartition(topic, number): listed.offset for number, listed in found.items()}
    return ends


async def set_group_offsets(request: WebRequest) -> GroupOffsets:
    """Commit offsets for the group. Raises NON_EMPTY_GROUP while it has members."""
    parameters: GroupParameters = request.parameters
    new: NewOffsets = request.body
    cluster = request.site.clusters.get(parameters.cluster)
    rows = {
        TopicPartition(each.topic, each.partition): CommittedOffset(each.offset, metadata=each.metadata)
        for each in new.offsets
    }
    await groups.commit_offsets(cluster, parameters.group, rows, cluster.timeout_s)
    request.parameters = GroupOffsetParameters(cluster=parameters.cluster, group=parameters.group)
    return await get_group_offsets(request)


async def reset_group_offsets(request: WebRequest) -> ResetOffsets:
    """Move the group to an offset or a time. Raises NON_EMPTY_GROUP while it has members."""
    parameters: GroupParameters = request.parameters
    wanted: Reset = request.body
    if wanted.offset is None and wanted.time is None:
        raise missing("offset", "set `offset` or `time`")
    if wanted.offset is not None and wanted.time is not None:
        raise contradictory("offset", "set either `offset` or `time`, not both")
    cluster = request.site.clusters.get(parameters.cluster)
    is_time = wanted.offset is None
    found = await groups.reset_offsets(
        cluster,
        parameters.group,
        wanted.topic,
        wanted.partitions,
        parse_time_ms(str(wanted.time), request.site.clock.wall_ms())
        if is_time
        else parse_positions(str(wanted.offset)),
        cluster.timeout_s,
        is_time=is_time,
        validate_only=wanted.validate_only,
    )
    offsets = {str(number): offset for number, offset in sorted(found.items())}
    return ResetOffsets(group=parameters.group, topic=wanted.topic, offsets=offsets)


async def delete_group_offsets(request: WebRequest) -> None:
    """Delete the group's offsets in a topic, or in one of its partitions.

    Raises GROUP_SUBSCRIBED_TO_TOPIC while members read the topic, GROUP_ID_NOT_FOUND for an unknown group.
    """
    parameters: GroupOffsetParameters = request.parameters
    if parameters.topic is None:
        raise missing("topic", "to delete all offsets, delete the group")
    cluster = request.site.clusters.get(parameters.cluster)
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
        "Set a group's committed offsets",
        Right.GROUPS_WRITE,
        set_group_offsets,
        parameters=GroupParameters,
        body=NewOffsets,
        answer=GroupOffsets,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.NON_EMPTY_GROUP),
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
        "Show a group's committed offsets and lag",
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
        "Delete a group's committed offsets of a topic",
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
        "Reset a group's offsets in a topic",
        Right.GROUPS_WRITE,
        reset_group_offsets,
        parameters=GroupParameters,
        body=Reset,
        answer=ResetOffsets,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.INVALID_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NON_EMPTY_GROUP),
        examples=(Example("To the end", "/v1/groups/reports/offsets", {"topic": "orders", "offset": "latest"}),),
    ),
)
