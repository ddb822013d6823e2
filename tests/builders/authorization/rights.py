"""Provides an authorizer whose grants a test controls."""

from collections.abc import Callable, Container

from millstream.model.authorization import Principal
from millstream.model.rights import Right

Rule = Callable[[Right, str], bool]
"""Decides if a right on a resource is granted."""


class Rights:
    """Grants by a rule, which a test may replace, and records the principals and clusters of all checks.

    Without `any_resource`, or for a right in `without`, no principal has the right on any resource.
    """

    def __init__(self, rule: Rule, *, any_resource: bool = True, without: Container[Right] = ()) -> None:
        self.rule = rule
        self._any_resource = any_resource
        self._without = without
        self.principals: set[Principal] = set()
        self.clusters: list[str] = []

    def allows(self, principal: Principal, right: Right, resource: str, cluster: str = "") -> bool:
        self.principals.add(principal)
        self.clusters.append(cluster)
        return self.rule(right, resource)

    def allows_any(self, principal: Principal, right: Right, cluster: str = "") -> bool:
        self.principals.add(principal)
        return self._any_resource and right not in self._without


def all_rights(right: Right, resource: str) -> bool:
    """Grant everything."""
    return True


def no_rights(right: Right, resource: str) -> bool:
    """Grant nothing."""
    return False
