"""The rows of the dispatch table that deal with groups."""

from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.dispatch.dispatch_table import ApiRight, ApiRow
from millstream.broker.group_requests import GroupCoordination, TopicNames
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


def group_rows(groups: GroupCoordination, topics: TopicNames, identity: BrokerIdentity) -> list[ApiRow]:
    return [
        ApiRow(8, "OffsetCommit", 2, 10, ApiRight.READ, OffsetCommitHandler(groups, topics), role=Role.CONSUMER),
        ApiRow(9, "OffsetFetch", 1, 10, ApiRight.DESCRIBE, OffsetFetchHandler(groups, topics), role=Role.CONSUMER),
        ApiRow(10, "FindCoordinator", 0, 6, ApiRight.DESCRIBE, FindCoordinatorHandler(identity, groups)),
        ApiRow(11, "JoinGroup", 0, 9, ApiRight.READ, JoinGroupHandler(groups), role=Role.CONSUMER),
        ApiRow(12, "Heartbeat", 0, 4, ApiRight.READ, HeartbeatHandler(groups), role=Role.CONSUMER),
        ApiRow(13, "LeaveGroup", 0, 5, ApiRight.READ, LeaveGroupHandler(groups), role=Role.CONSUMER),
        ApiRow(
            14, "SyncGroup", 0, 5, ApiRight.READ, SyncGroupHandler(groups),
            bytes_max=ASSIGNMENT_BYTES_MAX, role=Role.CONSUMER,
        ),
        ApiRow(15, "DescribeGroups", 0, 6, ApiRight.DESCRIBE, DescribeGroupsHandler(groups)),
        ApiRow(16, "ListGroups", 0, 5, ApiRight.DESCRIBE, ListGroupsHandler(groups)),
        ApiRow(42, "DeleteGroups", 0, 2, ApiRight.ADMIN, DeleteGroupsHandler(groups)),
        ApiRow(47, "OffsetDelete", 0, 0, ApiRight.ADMIN, OffsetDeleteHandler(groups, topics)),
        ApiRow(
            68, "ConsumerGroupHeartbeat", 0, 1, ApiRight.READ,
            ConsumerGroupHeartbeatHandler(groups), role=Role.CONSUMER,
        ),
        ApiRow(69, "ConsumerGroupDescribe", 0, 1, ApiRight.DESCRIBE, ConsumerGroupDescribeHandler(groups)),
    ]  # fmt: skip
