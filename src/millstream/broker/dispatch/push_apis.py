"""Builds the rows of the dispatch table for push subscriptions."""

from millstream.broker.dispatch.capabilities import PartitionLookup
from millstream.broker.dispatch.dispatch_table import ApiRow
from millstream.broker.dispatch.open_changes import CHANGED_PARTITIONS, DELETED_GROUPS, TOPICS
from millstream.broker.group_requests import GroupCoordination
from millstream.broker.handlers.subscribe import SubscribeHandler
from millstream.broker.handlers.subscription_commit import SubscriptionCommitHandler
from millstream.broker.handlers.unsubscribe import UnsubscribeHandler
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.push.subscriptions import Subscriptions
from millstream.model.rights import Right
from millstream.model.roles import Role


def push_rows(partitions: PartitionLookup, groups: GroupCoordination, memory: MemoryLimits) -> list[ApiRow]:
    subscribe = SubscribeHandler(partitions, groups, Subscriptions(memory))
    commit = SubscriptionCommitHandler(groups)
    return [
        ApiRow(
            1020, "Subscribe", 0, 0, Right.MESSAGES_READ, subscribe,
            role=Role.CONSUMER, waits_for=CHANGED_PARTITIONS | DELETED_GROUPS,
        ),
        ApiRow(
            1021, "SubscriptionCommit", 0, 0, Right.MESSAGES_READ, commit,
            role=Role.CONSUMER, waits_for=DELETED_GROUPS | TOPICS,
        ),
        ApiRow(1022, "Unsubscribe", 0, 0, Right.NOTHING, UnsubscribeHandler(), role=Role.CONSUMER),
    ]  # fmt: skip
