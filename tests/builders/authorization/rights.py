"""Provides an authorizer whose grants a test controls."""

from collections.abc import Callable

from millstream.model.authorization import Principal
from millstream.model.rights import Right

Rule = Callable[[Right, str], bool]
"""Decides if a right on a resource is granted."""


class Rights:
    """Grants by a rule, which a test may replace, and records the principals and clusters of all checks."""

    def __init__(self, rule: Rule, *, any_resource: bool = True) -> None:
        self.rule = rule
        self._any_resource = any_resource
        self.principals: set[Principal] = set()
        self.clusters: list[str] = []

    def allows(self, principal: Principal, right: Right, resource: str, cluster: str = "") -> bool:
        self.principals.add(principal)
        self.clusters.append(cluster)
        return self.rule(right, resource)

    def allows_any(self, principal: Principal, right: Right, cluster: str = "") -> bool:
        self.principals.add(principal)
        return self._any_resource


def all_rights(right: Right, resource: str) -> bool:
    """Grant everything."""
    return True


def no_rights(right: Right, resource: str) -> bool:
    """Grant nothing."""
    return False
