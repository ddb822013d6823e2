"""Builds the rows of the dispatch table for iterators.

The handlers of the coordinator and those of a partition's server share only the key that signs iterators.
"""

from millstream.broker.dispatch.capabilities import ClusterNode, PartitionLookup
from millstream.broker.dispatch.dispatch_table import ApiRow
from millstream.broker.dispatch.open_changes import CHANGED_PARTITIONS, DELETED_GROUPS, TOPICS
from millstream.broker.dispatch.request_targets import groups_in
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
from millstream.model.rights import Right
from millstream.model.roles import Role

BYTES_MAX = 64 * 1024
"""Maximum size of a request, which holds names, numbers and one iterator."""


def iterator_rows(
    groups: GroupCoordination,
    partitions: PartitionLookup,
    serving: IteratorServing,
    cluster: ClusterNode,
    memory: MemoryLimits,
) -> list[ApiRow]:
    signer = serving.signer
    handlers = (
        (1010, "IteratorJoin", Right.GROUPS_WRITE, IteratorJoinHandler(groups)),
        (1011, "IteratorHeartbeat", Right.GROUPS_WRITE, IteratorHeartbeatHandler(groups)),
        (1012, "IteratorLeave", Right.GROUPS_WRITE, IteratorLeaveHandler(groups)),
        (1013, "GetIterator", Right.GROUPS_WRITE, GetIteratorHandler(groups, signer, cluster)),
        (1014, "ListIterators", Right.GROUPS_READ, ListIteratorsHandler(groups, signer, cluster)),
        (1016, "CommitIterator", Right.GROUPS_WRITE, CommitIteratorHandler(groups, signer, cluster)),
        (1017, "DeliverIterator", Right.GROUPS_WRITE, DeliverIteratorHandler(groups, signer)),
    )
    read = ReadIteratorHandler(partitions, serving, memory)
    return [
        ApiRow(
            1015, "ReadIterator", 0, 0, Right.MESSAGES_READ, read,
            bytes_max=BYTES_MAX, role=Role.CONSUMER, waits_for=CHANGED_PARTITIONS,
        ),
        *(
            ApiRow(
                key, api, 0, 0, right, handle,
                bytes_max=BYTES_MAX, role=Role.CONSUMER, waits_for=DELETED_GROUPS | TOPICS, targets=groups_in(api),
            )
            for key, api, right, handle in handlers
        ),
    ]  # fmt: skip
