"""Defines the rights that operations require. Their names are the same for users, the broker and the gateway."""

from collections.abc import Mapping
from enum import Enum

from millstream.model.errors import ErrorCode


class Right(Enum):
    """A right of a principal on a topic, on a group or on the cluster."""

    NOTHING = "nothing"
    """Required by operations that are open to everyone, such as the documentation."""
    TOPICS_READ = "topics:read"
    TOPICS_WRITE = "topics:write"
    TOPICS_ADMIN = "topics:admin"
    MESSAGES_READ = "messages:read"
    MESSAGES_WRITE = "messages:write"
    GROUPS_READ = "groups:read"
    GROUPS_WRITE = "groups:write"
    CLUSTER_READ = "cluster:read"
    CLUSTER_ADMIN = "cluster:admin"

    @property
    def refusal(self) -> ErrorCode:
        """The error of an operation whose principal lacks this right."""
        return _REFUSALS[self]

    @property
    def on_topics(self) -> "Right":
        """The right that an operation requires on a topic that it names; a right on the cluster covers all topics."""
        return _ON_TOPICS.get(self, self)

    @property
    def on_groups(self) -> "Right":
        """The right that an operation requires on a group that it names; a right on the cluster covers all groups.

        A reader that names a group moves the group's position, which changes the group.
        """
        return _ON_GROUPS[self]


ON_CLUSTER = frozenset({Right.CLUSTER_READ, Right.CLUSTER_ADMIN})
"""Rights that are on the cluster as a whole."""

READING = frozenset({Right.NOTHING, Right.TOPICS_READ, Right.MESSAGES_READ, Right.GROUPS_READ, Right.CLUSTER_READ})
"""Rights of operations that change nothing."""

_TOPIC, _GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_REFUSALS: Mapping[Right, ErrorCode] = {
    Right.TOPICS_READ: _TOPIC,
    Right.TOPICS_WRITE: _TOPIC,
    Right.TOPICS_ADMIN: _TOPIC,
    Right.MESSAGES_READ: _TOPIC,
    Right.MESSAGES_WRITE: _TOPIC,
    Right.GROUPS_READ: _GROUP,
    Right.GROUPS_WRITE: _GROUP,
    Right.CLUSTER_READ: _CLUSTER,
    Right.CLUSTER_ADMIN: _CLUSTER,
}

_ON_TOPICS: Mapping[Right, Right] = {
    Right.GROUPS_READ: Right.TOPICS_READ,
    Right.GROUPS_WRITE: Right.MESSAGES_READ,
    Right.CLUSTER_READ: Right.NOTHING,
    Right.CLUSTER_ADMIN: Right.NOTHING,
}
_ON_GROUPS: Mapping[Right, Right] = {
    Right.NOTHING: Right.NOTHING,
    Right.GROUPS_READ: Right.GROUPS_READ,
    Right.GROUPS_WRITE: Right.GROUPS_WRITE,
    Right.MESSAGES_READ: Right.GROUPS_WRITE,
    Right.CLUSTER_READ: Right.NOTHING,
    Right.CLUSTER_ADMIN: Right.NOTHING,
}
