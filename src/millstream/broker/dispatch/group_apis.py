"""Builds the rows of the dispatch table for groups."""

from millstream.broker.dispatch.capabilities import ClusterNode
from millstream.broker.dispatch.dispatch_table import ApiRow
from millstream.broker.dispatch.open_changes import DELETED_GROUPS
from millstream.broker.dispatch.request_targets import groups_in
from millstream.broker.group_requests import GroupCoordination
from millstream.broker.handlers.consumer_group_describe import ConsumerGroupDescribeHandler
from millstream.broker.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from millstream.broker.handlers.delete_groups import DeleteGroupsHandler
from millstream.broker.handlers.describe_groups import DescribeGroupsHandler
from millstream.broker.handlers.find_coordinator import FindCoordinatorHandler
from millstream.broker.handlers.heartbeat import HeartbeatHandler
from millstream.broker.handlers.join_group import JoinGroupHandler
from millstream.broker.handlers.leave_group import LeaveGroupHandler
from millstream.broker.handlers.list_groups import ListGroupsHandler
from millstream.broker.handlers.offset_commit import OffsetCommitHandler
from millstream.broker.handlers.offset_delete import OffsetDeleteHandler
from millstream.broker.handlers.offset_fetch import OffsetFetchHandler
from millstream.broker.handlers.sync_group import SyncGroupHandler
from millstream.broker.handlers.watch_member import WatchMemberHandler
from millstream.model.rights import Right
from millstream.model.roles import Role

ASSIGNMENT_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a SyncGroup request: the group's leader sends the assignments of all members."""


def group_rows(groups: GroupCoordination, cluster: ClusterNode) -> list[ApiRow]:
    """Return the rows. A request of any of them waits for an earlier deletion of a group that it names."""
    rows = _rows(groups, cluster)
    return [row._replace(waits_for=row.waits_for | DELETED_GROUPS, targets=groups_in(row.api)) for row in rows]


def _rows(groups: GroupCoordination, cluster: ClusterNode) -> list[ApiRow]:
    return [
        ApiRow(8, "OffsetCommit", 2, 10, Right.GROUPS_WRITE, OffsetCommitHandler(groups, cluster), role=Role.CONSUMER),
        ApiRow(9, "OffsetFetch", 1, 10, Right.GROUPS_READ, OffsetFetchHandler(groups, cluster), role=Role.CONSUMER),
        ApiRow(
            10, "FindCoordinator", 0, 6, Right.GROUPS_READ, FindCoordinatorHandler(cluster, groups), by_resource=True
        ),
        ApiRow(11, "JoinGroup", 0, 9, Right.GROUPS_WRITE, JoinGroupHandler(groups), role=Role.CONSUMER),
        ApiRow(12, "Heartbeat", 0, 4, Right.GROUPS_WRITE, HeartbeatHandler(groups), role=Role.CONSUMER),
        ApiRow(13, "LeaveGroup", 0, 5, Right.GROUPS_WRITE, LeaveGroupHandler(groups), role=Role.CONSUMER),
        ApiRow(
            14, "SyncGroup", 0, 5, Right.GROUPS_WRITE, SyncGroupHandler(groups),
            bytes_max=ASSIGNMENT_BYTES_MAX, role=Role.CONSUMER,
        ),
        ApiRow(15, "DescribeGroups", 0, 6, Right.GROUPS_READ, DescribeGroupsHandler(groups)),
        ApiRow(16, "ListGroups", 0, 5, Right.GROUPS_READ, ListGroupsHandler(groups), by_resource=True),
        ApiRow(42, "DeleteGroups", 0, 2, Right.GROUPS_WRITE, DeleteGroupsHandler(groups)),
        ApiRow(47, "OffsetDelete", 0, 0, Right.GROUPS_WRITE, OffsetDeleteHandler(groups, cluster)),
        ApiRow(
            68, "ConsumerGroupHeartbeat", 0, 1, Right.GROUPS_WRITE,
            ConsumerGroupHeartbeatHandler(groups), role=Role.CONSUMER,
        ),
        ApiRow(69, "ConsumerGroupDescribe", 0, 1, Right.GROUPS_READ, ConsumerGroupDescribeHandler(groups)),
        ApiRow(1018, "WatchMember", 0, 0, Right.GROUPS_WRITE, WatchMemberHandler(groups), role=Role.CONSUMER),
    ]  # fmt: skip
