"""Tests that the memory of all requests together is bounded, and that no request is refused forever."""

import pytest

from millstream.gateway.budget import Budget, Share
from millstream.model.errors import ErrorCode, MillstreamError


def test_a_request_over_the_budget_is_refused_until_others_release_memory() -> None:
    budget = Budget(100)
    one, other = Share(budget), Share(budget)
    one.take(60)
    with pytest.raises(MillstreamError) as caught:
        other.take(41)
    assert caught.value.code is ErrorCode.GATEWAY_FULL
    other.take(40)
    one.give_back()
    other.take(60)
    assert budget.held_bytes == other.held_bytes == 100


def test_a_single_request_may_exceed_the_budget() -> None:
    share = Share(Budget(100))
    share.take(10)
    share.take(1_000)
    assert share.held_bytes == 1_010


def test_memory_that_cannot_be_refused_may_exceed_the_budget_and_is_counted() -> None:
    budget = Budget(100)
    Share(budget).take(100)
    done = Share(budget)
    done.take(50, is_refusable=False)
    assert budget.held_bytes == 150
    done.give_back(20)
    done.give_back()
    done.give_back()
    assert budget.held_bytes == 100
