"""Tests the access of one operation: the rights of its principal."""

import pytest

from millstream.model.authorization import ALLOW_ALL, FULL_ACCESS, Access, Principal
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import Right


class Grants:
    """Grants exactly these rights on exactly these resources."""

    def __init__(self, *granted: tuple[Right, str]) -> None:
        self._granted = set(granted)

    def allows(self, principal: Principal, right: Right, resource: str, cluster: str = "") -> bool:
        return (right, resource) in self._granted

    def allows_any(self, principal: Principal, right: Right, cluster: str = "") -> bool:
        return any(granted is right for granted, _ in self._granted)


@pytest.mark.parametrize("right", Right)
def test_full_access_allows_every_right(right: Right) -> None:
    access = Access(ALLOW_ALL, Principal(), right)
    assert not access.is_limited
    assert access.allows_any()
    assert access.allows_topic("orders")
    assert FULL_ACCESS.allows(right, "orders")
    FULL_ACCESS.check(right, "orders")


@pytest.mark.parametrize(
    ("right", "on_topic"),
    [
        (Right.MESSAGES_WRITE, Right.MESSAGES_WRITE),
        (Right.TOPICS_READ, Right.TOPICS_READ),
        (Right.GROUPS_READ, Right.TOPICS_READ),
        (Right.GROUPS_WRITE, Right.MESSAGES_READ),
    ],
)
def test_an_operation_requires_the_matching_right_on_a_topic(right: Right, on_topic: Right) -> None:
    access = Access(Grants((on_topic, "orders")), Principal("10.0.0.1"), right)
    access.check_topic("orders")
    with pytest.raises(MillstreamError) as failure:
        access.check_topic("invoices")
    assert failure.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert failure.value.detail == f"ANONYMOUS@10.0.0.1 does not have the right {on_topic.value} on 'invoices'"


def test_reading_in_a_group_requires_the_right_groups_write_on_the_group() -> None:
    access = Access(
        Grants((Right.MESSAGES_READ, "orders"), (Right.GROUPS_WRITE, "g")), Principal(), Right.MESSAGES_READ
    )
    access.check_group("g")
    with pytest.raises(MillstreamError) as failure:
        access.check_group("other")
    assert failure.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_right_on_the_cluster_covers_all_topics_and_groups() -> None:
    access = Access(Grants((Right.CLUSTER_ADMIN, "")), Principal(), Right.CLUSTER_ADMIN)
    assert access.allows_any()
    assert access.allows_topic("orders")
    assert access.allows_group("g")


def test_an_operation_is_refused_when_the_principal_has_its_right_on_no_resource() -> None:
    access = Access(Grants((Right.MESSAGES_READ, "orders")), Principal(), Right.MESSAGES_WRITE)
    assert not access.allows_any()
    assert access.refusal().code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
