"""Decides what a principal may do: defines the principal, the authorizer, and the access of one operation.

Invariant: an `Access` that is not limited allows everything. Only accesses of `ALLOW_ALL` (such as `FULL_ACCESS`) are
not limited.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from millstream.model.errors import MillstreamError
from millstream.model.rights import ON_CLUSTER, Right


class Principal(NamedTuple):
    """The identity on whose behalf a client acts, and the host of the client."""

    host: str = "?"
    name: str = "ANONYMOUS"

    def __str__(self) -> str:
        return f"{self.name}@{self.host}"


class Authorizer(Protocol):
    """Grants rights to principals.

    `cluster` is the name of a cluster. A gateway sets it, because it serves several clusters; "" means any cluster.
    """

    def allows(self, principal: Principal, right: Right, resource: str, cluster: str = "") -> bool:
        """Return True if the principal has the right on the resource: a topic, a group, or "" for the whole cluster."""
        ...

    def allows_any(self, principal: Principal, right: Right, cluster: str = "") -> bool:
        """Return True if there may be a resource on which the principal has the right."""
        ...


class _AllowAll:
    def allows(self, principal: Principal, right: Right, resource: str, cluster: str = "") -> bool:
        return True

    def allows_any(self, principal: Principal, right: Right, cluster: str = "") -> bool:
        return True


ALLOW_ALL: Authorizer = _AllowAll()
"""Grants every right to every principal."""


class Access:
    """The rights of a principal within one operation. Each operation declares the right that it requires.

    The right that the operation requires on a topic or a group follows from that right (see `Right`).
    """

    __slots__ = ("_authorizer", "_cluster", "_principal", "_right", "is_limited")

    def __init__(self, authorizer: Authorizer, principal: Principal, right: Right, cluster: str = "") -> None:
        self.is_limited = authorizer is not ALLOW_ALL
        self._authorizer = authorizer
        self._principal = principal
        self._right = right
        self._cluster = cluster

    def allows_any(self) -> bool:
        """Return True if the operation may be allowed on at least one resource."""
        if not self.is_limited or self._right is Right.NOTHING or self._right in ON_CLUSTER:
            return self.allows(self._right, "")
        return self._authorizer.allows_any(self._principal, self._right, self._cluster)

    def allows(self, right: Right, resource: str) -> bool:
        """Return True if the principal has this right on the resource. The operation's own right does not matter."""
        if right is Right.NOTHING or not self.is_limited:
            return True
        return self._authorizer.allows(self._principal, right, resource, self._cluster)

    def allows_topic(self, name: str) -> bool:
        return self.allows(self._right.on_topics, name)

    def allows_group(self, group_id: str) -> bool:
        return self.allows(self._right.on_groups, group_id)

    def check(self, right: Right, resource: str) -> None:
        """Check that the principal has the right on the resource. Otherwise raise the error of the missing right."""
        if not self.allows(right, resource):
            raise self.refusal(right, resource)

    def check_topic(self, name: str, *, is_named: bool = True) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED unless the operation is allowed on the topic.

        With `is_named=False` the error omits the topic name, because the request contains only the topic's id.
        """
        right = self._right.on_topics
        if not self.allows(right, name):
            raise self.refusal(right, name if is_named else "")

    def check_group(self, group_id: str) -> None:
        """Raise GROUP_AUTHORIZATION_FAILED unless the operation is allowed on the group."""
        self.check(self._right.on_groups, group_id)

    def check_any(self) -> None:
        """Check that the operation may be allowed on at least one resource.

        Otherwise raise the error of the missing right.
        """
        if not self.allows_any():
            raise self.refusal()

    def check_all(self, resources: Iterable[str], group_id: str | None = None) -> None:
        """Check the operation's right on each resource.

        An operation that reads messages for a group also needs the right to change that group.
        """
        for resource in resources:
            self.check(self._right, resource)
        if group_id and self._right is Right.MESSAGES_READ:
            self.check_group(group_id)

    def refusal(self, right: Right | None = None, resource: str = "") -> MillstreamError:
        """The error that refuses `right`, or the operation's own right by default."""
        assert self.is_limited, "an access that is not limited allows everything"
        right = right or self._right
        where = f" on {resource[:249]!r}" if resource else ""
        return MillstreamError(right.refusal, f"{self._principal} does not have the right {right.value}{where}")


FULL_ACCESS = Access(ALLOW_ALL, Principal(), Right.NOTHING)
