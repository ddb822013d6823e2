"""The rows of the dispatch table that deal with push subscriptions."""

from penstock.broker.capabilities import PartitionLookup
from penstock.broker.groups_seen import Groups
from penstock.broker.handlers.subscribe import SubscribeHandler
from penstock.broker.handlers.subscription_commit import SubscriptionCommitHandler
from penstock.broker.handlers.unsubscribe import UnsubscribeHandler
from penstock.broker.memory import Memory
from penstock.broker.push.subscriptions import Subscriptions
from penstock.broker.table import Right, Row
from penstock.model.roles import Role


def push_rows(partitions: PartitionLookup, groups: Groups, memory: Memory) -> list[Row]:
    subscribe = SubscribeHandler(partitions, groups, Subscriptions(memory))
    commit = SubscriptionCommitHandler(groups)
    return [
        Row(1020, "Subscribe", 0, 0, Right.READ, subscribe, role=Role.CONSUMER),
        Row(1021, "SubscriptionCommit", 0, 0, Right.READ, commit, role=Role.CONSUMER),
        Row(1022, "Unsubscribe", 0, 0, Right.READ, UnsubscribeHandler(), role=Role.CONSUMER),
    ]
