"""Implements GroupService: lists, describes and changes groups and their offsets."""

from millstream.gateway.failures import invalid
from millstream.gateway.grpc.call_handling import Call, needs
from millstream.gateway.grpc.message_conversion import (
    edge_of,
    offsets_of,
    partitions_of,
    to_partition_offsets,
    to_setting,
    to_topic_partitions,
)
from millstream.gateway.grpc.v1 import groups_pb2 as pb
from millstream.gateway.grpc.v1.events_pb2 import Start
from millstream.gateway.operations import groups, settings_and_queries
from millstream.gateway.operations.reads import Positions, check_offset, check_time_ms
from millstream.model.names import TopicPartition
from millstream.model.rights import Right
from millstream.sdk.admin.group_results import CommittedOffset, GroupLag, GroupMember

_PAGE_GROUPS = 100


class GroupService:
    @needs(Right.GROUPS_READ)
    async def list_groups(self, request: pb.ListGroupsRequest, call: Call) -> pb.ListGroupsResponse:
        cluster = call.cluster(request.cluster)
        page = await groups.list_groups(
            cluster,
            request.page_size or _PAGE_GROUPS,
            request.page_token,
            call.timeout_s(cluster),
            list(request.states),
            list(request.kinds),
        )
        rows = [
            pb.GroupSummary(group=row.group_id, kind=row.kind, protocol_type=row.protocol_type, state=row.state)
            for row in page.rows
        ]
        return pb.ListGroupsResponse(groups=rows, next_page_token=page.after or "")

    @needs(Right.GROUPS_READ, "group")
    async def describe_group(self, request: pb.DescribeGroupRequest, call: Call) -> pb.DescribeGroupResponse:
        cluster = call.cluster(request.cluster)
        found = await groups.describe_group(cluster, request.group, call.timeout_s(cluster))
        lags = await groups.group_lag(cluster, request.group, call.timeout_s(cluster))
        owners = {where: member.member_id for member in found.members for where in member.partitions}
        return pb.DescribeGroupResponse(
            group=found.group_id,
            kind=found.kind,
            state=found.state,
            protocol_type=found.protocol_type,
            assignor=found.assignor,
            epoch=found.epoch,
            members=map(_member, found.members),
            partitions=[_partition(where, each, owners.get(where, "")) for where, each in lags.items()],
        )

    @needs(Right.GROUPS_READ, "group")
    async def get_offsets(self, request: pb.GetOffsetsRequest, call: Call) -> pb.GetOffsetsResponse:
        cluster = call.cluster(request.cluster)
        places = partitions_of(request.partitions)
        found = await groups.group_offsets(cluster, request.group, places, call.timeout_s(cluster))
        rows = [
            pb.CommittedOffset(topic=where.topic, partition=where.partition, offset=row.offset, metadata=row.metadata)
            for where, row in sorted(found.items())
        ]
        return pb.GetOffsetsResponse(offsets=rows)

    @needs(Right.GROUPS_WRITE, "group")
    async def commit_offsets(self, request: pb.CommitOffsetsRequest, call: Call) -> pb.CommitOffsetsResponse:
        cluster = call.cluster(request.cluster)
        offsets = {
            TopicPartition(row.topic, row.partition): CommittedOffset(row.offset, metadata=row.metadata)
            for row in request.offsets
        }
        if any(row.offset < 0 for row in offsets.values()):
            raise invalid("offsets", "an offset is negative")
        await groups.commit_offsets(cluster, request.group, offsets, call.timeout_s(cluster))
        return pb.CommitOffsetsResponse()

    @needs(Right.GROUPS_WRITE, "group")
    async def reset_offsets(self, request: pb.ResetOffsetsRequest, call: Call) -> pb.ResetOffsetsResponse:
        cluster = call.cluster(request.cluster)
        found = await groups.reset_offsets(
            cluster,
            request.group,
            request.topic,
            list(request.partitions),
            _target(request.to),
            call.timeout_s(cluster),
            is_time=request.to.HasField("timestamp_ms"),
            validate_only=request.validate_only,
        )
        return pb.ResetOffsetsResponse(offsets=to_partition_offsets(found).offsets)

    @needs(Right.GROUPS_WRITE, "group")
    async def delete_offsets(self, request: pb.DeleteOffsetsRequest, call: Call) -> pb.DeleteOffsetsResponse:
        cluster = call.cluster(request.cluster)
        places = partitions_of(request.partitions)
        await groups.delete_offsets(cluster, request.group, places, call.timeout_s(cluster))
        return pb.DeleteOffsetsResponse()

    @needs(Right.GROUPS_WRITE, "group")
    async def delete_group(self, request: pb.DeleteGroupRequest, call: Call) -> pb.DeleteGroupResponse:
        cluster = call.cluster(request.cluster)
        await groups.delete_group(cluster, request.group, call.timeout_s(cluster))
        return pb.DeleteGroupResponse()

    @needs(Right.GROUPS_READ, "group")
    async def get_group_settings(self, request: pb.GetGroupSettingsRequest, call: Call) -> pb.GetGroupSettingsResponse:
        cluster = call.cluster(request.cluster)
        rows = await settings_and_queries.group_settings(cluster, request.group, call.timeout_s(cluster))
        return pb.GetGroupSettingsResponse(settings=map(to_setting, rows))

    @needs(Right.GROUPS_WRITE, "group")
    async def alter_group_settings(
        self, request: pb.AlterGroupSettingsRequest, call: Call
    ) -> pb.AlterGroupSettingsResponse:
        cluster = call.cluster(request.cluster)
        await settings_and_queries.alter_group_settings(
            cluster,
            request.group,
            dict(request.set),
            list(request.unset),
            call.timeout_s(cluster),
            validate_only=request.validate_only,
        )
        return pb.AlterGroupSettingsResponse()


def _target(to: Start) -> str | int | Positions:
    kind = to.WhichOneof("position")
    if kind is None:
        raise invalid("to", "missing; set an edge, an offset, a time or offsets")
    if kind == "offsets":
        return offsets_of(to.offsets.offsets, "to")
    if kind == "edge":
        return edge_of(to.edge, "to")
    return check_offset(to.offset, "to") if kind == "offset" else check_time_ms(to.timestamp_ms, "to")


def _partition(where: TopicPartition, lag: GroupLag, member_id: str) -> pb.PartitionLag:
    return pb.PartitionLag(
        topic=where.topic,
        partition=where.partition,
        committed=None if lag.committed is None else lag.committed.offset,
        beginning=lag.beginning,
        end=lag.end,
        lag=lag.lag,
        member_id=member_id,
    )


def _member(row: GroupMember) -> pb.GroupMember:
    return pb.GroupMember(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        epoch=row.epoch,
        topics=row.topics,
        partitions=to_topic_partitions(row.partitions),
    )
