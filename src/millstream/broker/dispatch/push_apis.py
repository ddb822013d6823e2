"""The rows of the dispatch table that deal with push subscriptions."""

from millstream.broker.dispatch.capabilities import PartitionLookup
from millstream.broker.dispatch.dispatch_table import ApiRight, ApiRow
from millstream.broker.group_requests import GroupCoordination
from millstream.broker.handlers.subscribe import SubscribeHandler
from millstream.broker.handlers.subscription_commit import SubscriptionCommitHandler
from millstream.broker.handlers.unsubscribe import UnsubscribeHandler
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.push.subscriptions import Subscriptions
from millstream.model.roles import Role


def push_rows(partitions: PartitionLookup, groups: GroupCoordination, memory: MemoryLimits) -> list[ApiRow]:
    subscribe = SubscribeHandler(partitions, groups, Subscriptions(memory))
    commit = SubscriptionCommitHandler(groups)
    return [
        ApiRow(1020, "Subscribe", 0, 0, ApiRight.READ, subscribe, role=Role.CONSUMER),
        ApiRow(1021, "SubscriptionCommit", 0, 0, ApiRight.READ, commit, role=Role.CONSUMER),
        ApiRow(1022, "Unsubscribe", 0, 0, ApiRight.READ, UnsubscribeHandler(), role=Role.CONSUMER),
    ]
