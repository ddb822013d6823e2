"""Lists, describes and deletes groups over HTTP. `group_offsets` has their committed offsets."""

from collections.abc import Sequence

import msgspec

from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources import resource_settings
from millstream.gateway.http.resources.common_parameters import GroupParameters, PageParameters
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import groups
from millstream.model.errors import ErrorCode
from millstream.model.names import TopicPartition
from millstream.model.rights import Right
from millstream.sdk.admin.group_results import GroupLag, GroupMember


class ListedGroupBody(msgspec.Struct, kw_only=True):
    group: str
    kind: str
    protocol: str
    state: str


class ListedGroupsBody(msgspec.Struct, kw_only=True):
    """A page of groups, ordered by name. Send `after` to get the next page; it is null on the last one."""

    groups: list[ListedGroupBody]
    after: str | None


class MemberPartition(msgspec.Struct, kw_only=True):
    topic: str
    partition: int


class MemberView(msgspec.Struct, kw_only=True):
    member: str
    instance: str | None
    client: str
    host: str
    epoch: int
    topics: Sequence[str]
    partitions: list[MemberPartition]


class PartitionLag(msgspec.Struct, kw_only=True):
    """A group's progress in a partition. `committed` is null if the group has committed nothing in it.

    A partition without a committed offset counts from its beginning. The other numbers are null if the partition was
    deleted or is quarantined. `member` is the id of the member that reads it.
    """

    topic: str
    partition: int
    committed: int | None
    beginning: int | None
    end: int | None
    lag: int | None
    member: str | None


class GroupView(msgspec.Struct, kw_only=True):
    """A group with its members, and its progress in all partitions of the topics that it reads or has committed."""

    group: str
    kind: str
    state: str
    protocol: str
    assignor: str
    epoch: int
    lag: int
    """The sum of the known lags."""
    members: list[MemberView]
    partitions: list[PartitionLag]


async def list_groups(request: WebRequest) -> ListedGroupsBody:
    """Return a page of groups, ordered by name."""
    parameters: PageParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    found = await groups.list_groups(cluster, parameters.limit, parameters.after or "", cluster.timeout_s)
    rows = [
        ListedGroupBody(group=row.group_id, kind=row.kind, protocol=row.protocol_type, state=row.state)
        for row in found.rows
    ]
    return ListedGroupsBody(groups=rows, after=found.after)


async def describe_group(request: WebRequest) -> GroupView:
    """Return the group with all its members and its lag."""
    parameters: GroupParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    found = await groups.describe_group(cluster, parameters.group, cluster.timeout_s)
    lags = await groups.group_lag(cluster, parameters.group, cluster.timeout_s)
    owners = {where: member.member_id for member in found.members for where in member.partitions}
    return GroupView(
        group=found.group_id,
        kind=found.kind,
        state=found.state,
        protocol=found.protocol_type,
        assignor=found.assignor,
        epoch=found.epoch,
        lag=sum(each.lag or 0 for each in lags.values()),
        members=[_member(each) for each in found.members],
        partitions=[_partition(where, each, owners.get(where)) for where, each in lags.items()],
    )


def _partition(where: TopicPartition, lag: GroupLag, member: str | None) -> PartitionLag:
    return PartitionLag(
        topic=where.topic,
        partition=where.partition,
        committed=None if lag.committed is None else lag.committed.offset,
        beginning=lag.beginning,
        end=lag.end,
        lag=lag.lag,
        member=member,
    )


def _member(member: GroupMember) -> MemberView:
    return MemberView(
        member=member.member_id,
        instance=member.instance_id,
        client=member.client_id,
        host=member.client_host,
        epoch=member.epoch,
        topics=member.topics,
        partitions=[MemberPartition(topic=topic, partition=partition) for topic, partition in member.partitions],
    )


async def delete_group(request: WebRequest) -> None:
    """Delete the group and its offsets. Raises NON_EMPTY_GROUP while it has members."""
    parameters: GroupParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    await groups.delete_group(cluster, parameters.group, cluster.timeout_s)


_ERRORS = (ErrorCode.UNKNOWN_CLUSTER, ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND)

OPERATIONS = (
    WebOperation(
        "GET",
        "/v1/groups",
        "listGroups",
        "List groups",
        Right.GROUPS_READ,
        list_groups,
        parameters=PageParameters,
        answer=ListedGroupsBody,
        group="Groups",
        errors=(ErrorCode.UNKNOWN_CLUSTER,),
        examples=(Example("All", "/v1/groups"),),
    ),
    WebOperation(
        "GET",
        "/v1/groups/{group}",
        "describeGroup",
        "Describe a group",
        Right.GROUPS_READ,
        describe_group,
        parameters=GroupParameters,
        answer=GroupView,
        concerns="group",
        group="Groups",
        errors=_ERRORS,
        examples=(Example("A group", "/v1/groups/reports"),),
    ),
    WebOperation(
        "GET",
        "/v1/groups/{group}/settings",
        "getGroupSettings",
        "Show a group's settings",
        Right.GROUPS_READ,
        resource_settings.get_group_settings,
        parameters=GroupParameters,
        answer=resource_settings.SettingsView,
        concerns="group",
        group="Groups",
        errors=_ERRORS,
        examples=(Example("A group's", "/v1/groups/reports/settings"),),
    ),
    WebOperation(
        "PATCH",
        "/v1/groups/{group}/settings",
        "changeGroupSettings",
        "Change a group's settings",
        Right.GROUPS_WRITE,
        resource_settings.change_group_settings,
        parameters=GroupParameters,
        body=resource_settings.ChangedSettings,
        answer=resource_settings.SettingsView,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.INVALID_CONFIG),
        examples=(Example("Nothing", "/v1/groups/reports/settings", {"unset": []}),),
    ),
    WebOperation(
        "DELETE",
        "/v1/groups/{group}",
        "deleteGroup",
        "Delete a group and its offsets",
        Right.GROUPS_WRITE,
        delete_group,
        parameters=GroupParameters,
        status=204,
        concerns="group",
        group="Groups",
        errors=(*_ERRORS, ErrorCode.NON_EMPTY_GROUP),
        examples=(Example("A group", "/v1/groups/reports"),),
    ),
)
