"""The rows of the dispatch table that deal with push subscriptions."""

from millstream.broker.dispatch.capabilities import PartitionLookup
from millstream.broker.dispatch.table import Right, Row
from millstream.broker.groups_seen import Groups
from millstream.broker.handlers.subscribe import SubscribeHandler
from millstream.broker.handlers.subscription_commit import SubscriptionCommitHandler
from millstream.broker.handlers.unsubscribe import UnsubscribeHandler
from millstream.broker.net.memory import Memory
from millstream.broker.push.subscriptions import Subscriptions
from millstream.model.roles import Role


def push_rows(partitions: PartitionLookup, groups: Groups, memory: Memory) -> list[Row]:
    subscribe = SubscribeHandler(partitions, groups, Subscriptions(memory))
    commit = SubscriptionCommitHandler(groups)
    return [
        Row(1020, "Subscribe", 0, 0, Right.READ, subscribe, role=Role.CONSUMER),
        Row(1021, "SubscriptionCommit", 0, 0, Right.READ, commit, role=Role.CONSUMER),
        Row(1022, "Unsubscribe", 0, 0, Right.READ, UnsubscribeHandler(), role=Role.CONSUMER),
    ]
