"""The rows of the dispatch table that deal with iterators. What is asked of the coordinator and what of the server of a
partition share nothing here but the key that iterators are signed with."""

from millstream.broker.dispatch.capabilities import BrokerIdentity, PartitionLookup
from millstream.broker.dispatch.dispatch_table import ApiRight, ApiRow
from millstream.broker.group_requests import GroupCoordination
from millstream.broker.handlers.commit_iterator import CommitIteratorHandler
from millstream.broker.handlers.deliver_iterator import DeliverIteratorHandler
from millstream.broker.handlers.get_iterator import GetIteratorHandler
from millstream.broker.handlers.iterator_membership import (
    IteratorHeartbeatHandler,
    IteratorJoinHandler,
    IteratorLeaveHandler,
)
from millstream.broker.handlers.list_iterators import ListIteratorsHandler
from millstream.broker.handlers.read_iterator import ReadIteratorHandler
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.signed_iterators import IteratorServing
from millstream.model.roles import Role

BYTES_MAX = 64 * 1024
"""Largest request: names, numbers, and one iterator."""


def iterator_rows(
    groups: GroupCoordination,
    partitions: PartitionLookup,
    serving: IteratorServing,
    identity: BrokerIdentity,
    memory: MemoryLimits,
) -> list[ApiRow]:
    seal = serving.seal
    handlers = (
        (1010, "IteratorJoin", ApiRight.READ, IteratorJoinHandler(groups)),
        (1011, "IteratorHeartbeat", ApiRight.READ, IteratorHeartbeatHandler(groups)),
        (1012, "IteratorLeave", ApiRight.READ, IteratorLeaveHandler(groups)),
        (1013, "GetIterator", ApiRight.READ, GetIteratorHandler(groups, seal, identity)),
        (1014, "ListIterators", ApiRight.DESCRIBE, ListIteratorsHandler(groups, seal, identity)),
        (1015, "ReadIterator", ApiRight.READ, ReadIteratorHandler(partitions, serving, memory)),
        (1016, "CommitIterator", ApiRight.READ, CommitIteratorHandler(groups, seal, identity)),
        (1017, "DeliverIterator", ApiRight.READ, DeliverIteratorHandler(groups, seal)),
    )
    return [
        ApiRow(key, api, 0, 0, right, handle, bytes_max=BYTES_MAX, role=Role.CONSUMER)
        for key, api, right, handle in handlers
    ]
