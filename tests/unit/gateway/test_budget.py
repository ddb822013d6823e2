"""What requests hold together is bounded, and no single one is kept out for ever."""

import pytest

from millstream.gateway.budget import Budget, Share
from millstream.model.errors import ErrorCode, MillstreamError


def test_what_is_too_much_beside_others_is_refused_until_they_give_back() -> None:
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


def test_a_request_that_is_alone_gets_all_it_needs() -> None:
    share = Share(Budget(100))
    share.take(10)
    share.take(1_000)
    assert share.held_bytes == 1_010


def test_what_is_done_is_answered_and_counts() -> None:
    budget = Budget(100)
    Share(budget).take(100)
    done = Share(budget)
    done.take(50, is_refusable=False)
    assert budget.held_bytes == 150
    done.give_back(20)
    done.give_back()
    done.give_back()
    assert budget.held_bytes == 100
