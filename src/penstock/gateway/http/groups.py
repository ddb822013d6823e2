"""Groups seen from outside: who belongs to them, and how far they are."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.gateway import grouping
from penstock.gateway.clusters import Cluster
from penstock.gateway.failures import invalid
from penstock.gateway.http import resource_settings
from penstock.gateway.http.asked import Asked
from penstock.gateway.http.named import Offset, OfGroup, Page, Partition, TopicName
from penstock.gateway.http.table import Example, Operation
from penstock.gateway.reading import LATEST
from penstock.gateway.rights import Right
from penstock.gateway.topics import find_offsets
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.sdk.group_answers import CommittedOffset, GroupMember


class ListedGroup(msgspec.Struct, kw_only=True):
    group: str
    kind: str
    protocol: str
    state: str


class ListedGroups(msgspec.Struct, kw_only=True):
    """In the order of their names; `after` asks for those that follow, and is null at the end."""

    groups: list[ListedGroup]
    after: str | None


class ShownPlace(msgspec.Struct, kw_only=True):
    topic: str
    partition: int


class ShownMember(msgspec.Struct, kw_only=True):
    member: str
    instance: str | None
    client: str
    host: str
    epoch: int
    topics: Sequence[str]
    partitions: list[ShownPlace]


class ShownGroup(msgspec.Struct, kw_only=True):
    group: str
    kind: str
    state: str
    protocol: str
    assignor: str
    epoch: int
    members: list[ShownMember]


class ShownOffset(msgspec.Struct, kw_only=True):
    """`lag` is how many messages are behind it, null where that is not known."""

    topic: str
    partition: int
    offset: int
    metadata: str
    lag: int | None


class ShownOffsets(msgspec.Struct, kw_only=True):
    group: str
    offsets: list[ShownOffset]


class NewOffset(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    topic: TopicName
    partition: Partition
    offset: Annotated[Offset, Meta(description="The next message that the group will read.")]
    metadata: str = ""


class NewOffsets(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a group shall go on. That is for groups whose members are away."""

    offsets: Annotated[list[NewOffset], Meta(min_length=1, max_length=10_000)]


class GroupPlaces(OfGroup, kw_only=True):
    """Which of its offsets are meant; all without a topic."""

    topic: TopicName | None = None
    partition: Partition | None = None


async def list_groups(asked: Asked) -> ListedGroups:
    """A page of them, in the order of their names."""
    parameters: Page = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    found = await grouping.list_groups(cluster, parameters.limit, parameters.after or "", cluster.timeout_s)
    rows = [
        ListedGroup(group=row.group_id, kind=row.kind, protocol=row.protocol_type, state=row.state)
        for row in found.rows
    ]
    return ListedGroups(groups=rows, after=found.after)


async def describe_group(asked: Asked) -> ShownGroup:
    """With all its members."""
    parameters: OfGroup = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    found = await grouping.describe_group(cluster, parameters.group, cluster.timeout_s)
    return ShownGroup(
        group=found.group_id,
        kind=found.kind,
        state=found.state,
        protocol=found.protocol_type,
        assignor=found.assignor,
        epoch=found.epoch,
        members=[_member(each) for each in found.members],
    )


def _member(member: GroupMember) -> ShownMember:
    return ShownMember(
        member=member.member_id,
        instance=member.instance_id,
        client=member.client_id,
        host=member.client_host,
        epoch=member.epoch,
        topics=member.topics,
        partitions=[ShownPlace(topic=topic, partition=partition) for topic, partition in member.partitions],
    )


async def delete_group(asked: Asked) -> None:
    """NON_EMPTY_GROUP while it has members."""
    parameters: OfGroup = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    await grouping.delete_group(cluster, parameters.group, cluster.timeout_s)


async def get_group_offsets(asked: Asked) -> ShownOffsets:
    """What it has committed, with what is behind that; empty where it has committed nothing."""
    parameters: GroupPlaces = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    found = await grouping.group_offsets(cluster, parameters.group, (), cluster.timeout_s)
    wanted = {where: each for where, each in sorted(found.items()) if _is_wanted(where, parameters)}
    ends = await _ends(cluster, wanted)
    rows = [
        ShownOffset(
            topic=where.topic,
            partition=where.partition,
            offset=each.offset,
            metadata=each.metadata,
            lag=max(0, ends[where] - each.offset) if where in ends else None,
        )
        for where, each in wanted.items()
    ]
    return ShownOffsets(group=parameters.group, offsets=rows)


def _is_wanted(where: TopicPartition, parameters: GroupPlaces) -> bool:
    is_topic = parameters.topic is None or where.topic == parameters.topic
    return is_topic and (parameters.partition is None or where.partition == parameters.partition)


async def _ends(cluster: Cluster, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where these partitions end; without those of topics that cannot tell, since they were deleted, say."""
    ends: dict[TopicPartition, int] = {}
    for topic, rows in groupby(places, key=lambda where: where.topic):
        numbers = [where.partition for where in rows]
        try:
            found = await find_offsets(cluster, topic, numbers, LATEST, cluster.timeout_s)
        except PenstockError:
            continue
        ends |= {TopicPartition(topic, number): listed.offset for number, listed in found.items()}
    return ends


async def set_group_offsets(asked: Asked) -> ShownOffsets:
    """UNKNOWN_MEMBER_ID while it has members."""
    parameters: OfGroup = asked.parameters
    new: NewOffsets = asked.body
    cluster = asked.site.clusters.get(parameters.cluster)
    rows = {
        TopicPartition(each.topic, each.partition): CommittedOffset(each.offset, metadata=each.metadata)
        for each in new.offsets
    }
    await grouping.commit_offsets(cluster, parameters.group, rows, cluster.timeout_s)
    asked.parameters = GroupPlaces(cluster=parameters.cluster, group=parameters.group)
    return await get_group_offsets(asked)


async def delete_group_offsets(asked: Asked) -> None:
    """In a topic, or in one partition of it; GROUP_SUBSCRIBED_TO_TOPIC while its members read that, GROUP_ID_NOT_FOUND
    for a group that is not there."""
    parameters: GroupPlaces = asked.parameters
    if parameters.topic is None:
        raise invalid("topic", "it is missing; DELETE of the group itself forgets everything")
    cluster = asked.site.clusters.get(parameters.cluster)
    found = await grouping.group_offsets(cluster, parameters.group, (), cluster.timeout_s)
    places = [where for where in found if _is_wanted(where, parameters)]
    if not found:
        await grouping.describe_group(cluster, parameters.group, cluster.timeout_s)
    await grouping.delete_offsets(cluster, parameters.group, places, cluster.timeout_s)


_ERRORS = (ErrorCode.UNKNOWN_CLUSTER, ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND)

OPERATIONS = (
    Operation(
        "GET",
        "/v1/groups",
        "listGroups",
        "List groups",
        Right.GROUPS_READ,
        list_groups,
        parameters=Page,
        answer=ListedGroups,
        group="Groups",
        errors=(ErrorCode.UNKNOWN_CLUSTER,),
        examples=(Example("All", "/v1/groups"),),
    ),
    Operation(
        "PUT",
        "/v1/groups/{group}/offsets",
        "setGroupOffsets",
        "Set where a group goes on",
        Right.GROUPS_WRITE,
        set_group_offsets,
        parameters=OfGroup,
        body=NewOffsets,
        answer=ShownOffsets,
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
    Operation(
        "GET",
        "/v1/groups/{group}/offsets",
        "getGroupOffsets",
        "Show how far a group is",
        Right.GROUPS_READ,
        get_group_offsets,
        parameters=GroupPlaces,
        answer=ShownOffsets,
        concerns="group",
        group="Groups",
        errors=_ERRORS,
        examples=(Example("A group", "/v1/groups/reports/offsets"),),
    ),
    Operation(
        "GET",
        "/v1/groups/{group}",
        "describeGroup",
        "Describe a group",
        Right.GROUPS_READ,
        describe_group,
        parameters=OfGroup,
        answer=ShownGroup,
        concerns="group",
        group="Groups",
        errors=_ERRORS,
        examples=(Example("A group", "/v1/groups/reports"),),
    ),
    Operation(
        "GET",
        "/v1/groups/{group}/settings",
        "getGroupSettings",
        "Show a group's settings",
        Right.GROUPS_READ,
        resource_settings.get_group_settings,
        parameters=OfGroup,
        answer=resource_settings.ShownSettings,
        concerns="group",
        group="Groups",
        errors=_ERRORS,
        examples=(Example("A group's", "/v1/groups/reports/settings"),),
    ),
    Operation(
        "PATCH",
        "/v1/groups/{group}/settings",
        "changeGroupSettings",
        "Change a group's settings",
        Right.GROUPS_WRITE,
        resource_settings.change_group_settings,
        parameters=OfGroup,
        body=resource_settings.ChangedSettings,
        answer=resource_settings.ShownSettings,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.INVALID_CONFIG),
        examples=(Example("Nothing", "/v1/groups/reports/settings", {"unset": []}),),
    ),
    Operation(
        "DELETE",
        "/v1/groups/{group}/offsets",
        "deleteGroupOffsets",
        "Forget where a group was in a topic",
        Right.GROUPS_WRITE,
        delete_group_offsets,
        parameters=GroupPlaces,
        status=204,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        examples=(Example("In a topic", "/v1/groups/reports/offsets?topic=orders"),),
    ),
    Operation(
        "DELETE",
        "/v1/groups/{group}",
        "deleteGroup",
        "Delete a group with its offsets",
        Right.GROUPS_WRITE,
        delete_group,
        parameters=OfGroup,
        status=204,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.NON_EMPTY_GROUP),
        examples=(Example("A group", "/v1/groups/reports"),),
    ),
)
