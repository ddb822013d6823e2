"""The rows of the dispatch table that deal with iterators. What is asked of the coordinator and what of the server of a
partition share nothing here but the key that iterators are signed with."""

from millstream.broker.dispatch.capabilities import Identity, PartitionLookup
from millstream.broker.dispatch.table import Right, Row
from millstream.broker.groups_seen import Groups
from millstream.broker.handlers.group_members import GroupBeatHandler, GroupJoinHandler, GroupLeaveHandler
from millstream.broker.handlers.iter import IterHandler
from millstream.broker.handlers.iter_commit import IterCommitHandler
from millstream.broker.handlers.iter_get import IterGetHandler
from millstream.broker.handlers.iter_hand import IterHandHandler
from millstream.broker.handlers.iters import ItersHandler
from millstream.broker.iterators_seen import IteratorServing
from millstream.broker.net.memory import Memory
from millstream.model.roles import Role

BYTES_MAX = 64 * 1024
"""Largest request: names, numbers, and one iterator."""


def iterator_rows(
    groups: Groups, partitions: PartitionLookup, serving: IteratorServing, identity: Identity, memory: Memory
) -> list[Row]:
    seal = serving.seal
    handlers = (
        (1010, "GroupJoin", Right.READ, GroupJoinHandler(groups)),
        (1011, "GroupBeat", Right.READ, GroupBeatHandler(groups)),
        (1012, "GroupLeave", Right.READ, GroupLeaveHandler(groups)),
        (1013, "IterGet", Right.READ, IterGetHandler(groups, seal, identity)),
        (1014, "Iters", Right.DESCRIBE, ItersHandler(groups, seal, identity)),
        (1015, "Iter", Right.READ, IterHandler(partitions, serving, memory)),
        (1016, "IterCommit", Right.READ, IterCommitHandler(groups, seal, identity)),
        (1017, "IterHand", Right.READ, IterHandHandler(groups, seal)),
    )
    return [
        Row(key, api, 0, 0, right, handle, bytes_max=BYTES_MAX, role=Role.CONSUMER)
        for key, api, right, handle in handlers
    ]
