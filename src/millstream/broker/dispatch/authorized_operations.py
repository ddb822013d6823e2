"""Computes the operations that a principal may perform on a topic, a group or the cluster, as in Kafka's responses.

The result is a bit field. The bit of an operation's number in Kafka is set if the principal has the right for it.
"""

from collections.abc import Mapping

from millstream.model.authorization import Access
from millstream.model.rights import Right

_TOPIC: Mapping[int, Right] = {
    3: Right.MESSAGES_READ,
    4: Right.MESSAGES_WRITE,
    5: Right.TOPICS_WRITE,
    6: Right.TOPICS_ADMIN,
    7: Right.TOPICS_ADMIN,
    8: Right.TOPICS_READ,
    10: Right.TOPICS_READ,
    11: Right.TOPICS_ADMIN,
}
_GROUP: Mapping[int, Right] = {
    3: Right.GROUPS_WRITE,
    6: Right.GROUPS_WRITE,
    8: Right.GROUPS_READ,
    10: Right.GROUPS_READ,
    11: Right.GROUPS_WRITE,
}
_CLUSTER: Mapping[int, Right] = {
    5: Right.CLUSTER_ADMIN,
    7: Right.CLUSTER_ADMIN,
    8: Right.CLUSTER_READ,
    9: Right.CLUSTER_ADMIN,
    10: Right.CLUSTER_READ,
    11: Right.CLUSTER_ADMIN,
    12: Right.CLUSTER_ADMIN,
}
"""The right for each operation, by Kafka's number: read 3, write 4, create 5, delete 6, alter 7, describe 8,
cluster action 9, describe configs 10, alter configs 11, idempotent write 12."""

NOT_REQUESTED = -(2**31)
"""The value of the field if the request does not ask for operations."""


def _bits(operations: Mapping[int, Right]) -> int:
    return sum(1 << operation for operation in operations)


_ALL_OF_TOPIC, _ALL_OF_GROUP, _ALL_OF_CLUSTER = _bits(_TOPIC), _bits(_GROUP), _bits(_CLUSTER)


def topic_operations(access: Access, name: str) -> int:
    return _allowed(access, _TOPIC, name) if access.is_limited else _ALL_OF_TOPIC


def group_operations(access: Access, group_id: str) -> int:
    return _allowed(access, _GROUP, group_id) if access.is_limited else _ALL_OF_GROUP


def cluster_operations(access: Access) -> int:
    return _allowed(access, _CLUSTER, "") if access.is_limited else _ALL_OF_CLUSTER


def _allowed(access: Access, operations: Mapping[int, Right], resource: str) -> int:
    return sum(1 << operation for operation, right in operations.items() if access.allows(right, resource))
