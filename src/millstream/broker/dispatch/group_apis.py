"""The rows of the dispatch table that deal with groups."""

from millstream.broker.dispatch.capabilities import Identity
from millstream.broker.dispatch.table import Right, Row
from millstream.broker.groups_seen import Groups, TopicNames
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
from millstream.model.roles import Role

ASSIGNMENT_BYTES_MAX = 16 * 1024 * 1024
"""Largest request of a leader, which tells each member of a large group what it gets."""


def group_rows(groups: Groups, topics: TopicNames, identity: Identity) -> list[Row]:
    return [
        Row(8, "OffsetCommit", 2, 10, Right.READ, OffsetCommitHandler(groups, topics), role=Role.CONSUMER),
        Row(9, "OffsetFetch", 1, 10, Right.DESCRIBE, OffsetFetchHandler(groups, topics), role=Role.CONSUMER),
        Row(10, "FindCoordinator", 0, 6, Right.DESCRIBE, FindCoordinatorHandler(identity, groups)),
        Row(11, "JoinGroup", 0, 9, Right.READ, JoinGroupHandler(groups), role=Role.CONSUMER),
        Row(12, "Heartbeat", 0, 4, Right.READ, HeartbeatHandler(groups), role=Role.CONSUMER),
        Row(13, "LeaveGroup", 0, 5, Right.READ, LeaveGroupHandler(groups), role=Role.CONSUMER),
        Row(
            14, "SyncGroup", 0, 5, Right.READ, SyncGroupHandler(groups),
            bytes_max=ASSIGNMENT_BYTES_MAX, role=Role.CONSUMER,
        ),
        Row(15, "DescribeGroups", 0, 6, Right.DESCRIBE, DescribeGroupsHandler(groups)),
        Row(16, "ListGroups", 0, 5, Right.DESCRIBE, ListGroupsHandler(groups)),
        Row(42, "DeleteGroups", 0, 2, Right.ADMIN, DeleteGroupsHandler(groups)),
        Row(47, "OffsetDelete", 0, 0, Right.ADMIN, OffsetDeleteHandler(groups, topics)),
        Row(68, "ConsumerGroupHeartbeat", 0, 1, Right.READ, ConsumerGroupHeartbeatHandler(groups), role=Role.CONSUMER),
        Row(69, "ConsumerGroupDescribe", 0, 1, Right.DESCRIBE, ConsumerGroupDescribeHandler(groups)),
    ]  # fmt: skip
