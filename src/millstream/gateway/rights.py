"""What a caller may do: the place where logins and permissions will stand.

Every route and every method declares the right it needs, and each interface asks the guard in one place, before it does
anything. Today the only guard allows all.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol


class Right(Enum):
    """What can be allowed, by the words that people see."""

    NOTHING = "nothing"
    """Needed for what anybody may see: documentation, for example."""
    TOPICS_READ = "topics:read"
    TOPICS_WRITE = "topics:write"
    TOPICS_ADMIN = "topics:admin"
    MESSAGES_READ = "messages:read"
    MESSAGES_WRITE = "messages:write"
    GROUPS_READ = "groups:read"
    GROUPS_WRITE = "groups:write"
    CLUSTER_READ = "cluster:read"
    CLUSTER_ADMIN = "cluster:admin"


READING = frozenset({Right.NOTHING, Right.TOPICS_READ, Right.MESSAGES_READ, Right.GROUPS_READ, Right.CLUSTER_READ})
"""What needs only these changes nothing."""


class Caller(NamedTuple):
    """Who asks. Nobody logs in yet, so that there is only an address."""

    address: str
    name: str | None = None


class RightsGuard(Protocol):
    def check(self, caller: Caller, right: Right, cluster: str, resource: str) -> None:
        """Raise TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED unless the caller has this right on the resource.

        `resource` is a topic's or a group's name, as the right says; empty for all of the cluster.
        """
        ...


class _Anybody:
    def check(self, caller: Caller, right: Right, cluster: str, resource: str) -> None:
        pass


ANYBODY: RightsGuard = _Anybody()
"""Allows everything to everybody."""


def check_all(
    guard: RightsGuard, caller: Caller, right: Right, cluster: str, resources: Iterable[str], group: str | None
) -> None:
    """Check the right on each resource. Who reads for a group moves its place, and needs that right as well."""
    for resource in resources:
        guard.check(caller, right, cluster, resource)
    if right is Right.MESSAGES_READ and group:
        guard.check(caller, Right.GROUPS_WRITE, cluster, group)
