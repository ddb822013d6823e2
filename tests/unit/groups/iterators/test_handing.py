"""Tests DeliverIterator: deliveries are recorded, listed for the client, and committed."""

from typing import Any

import pytest
from msgspec.structs import replace

from builders.groups.iterator_clients import IN_FLIGHT_MS, IteratorClient, IteratorDriver, driver
from millstream.groups.iterators.issue import DELIVERED
from millstream.groups.iterators.iterator import Iterator
from millstream.model.errors import ErrorCode


def handing(count: int = 5, **got: Any) -> tuple[IteratorDriver, IteratorClient, Iterator]:
    """Returns a client that has delivered `count` messages of partition 0, starting at offset 0."""
    machine = driver()
    (a,) = machine.joined("a")
    iterator = replace(a.get(0, **got), offset=0)
    assert a.deliver(iterator, count).error is ErrorCode.NONE
    return machine, a, iterator


def test_a_commit_of_deliveries_covers_exactly_the_delivered_messages() -> None:
    machine, a, iterator = handing(5)
    assert a.delivered() == {0: (0, 5)}
    following = a.settle(iterator, DELIVERED)
    assert (machine.offsets(), following.offset, a.delivered()) == ({("orders", 0): 5}, 5, {})


def test_an_iterator_with_another_offset_can_commit_the_deliveries() -> None:
    machine, a, iterator = handing(5)
    a.settle(replace(iterator, offset=-2), DELIVERED)
    assert machine.offsets() == {("orders", 0): 5}


def test_a_new_delivery_replaces_the_previous_one() -> None:
    machine, a, iterator = handing(5)
    a.deliver(iterator, 3)
    assert a.delivered() == {0: (0, 3)}
    a.deliver(replace(iterator, offset=20), 2)
    assert a.delivered() == {0: (20, 2)}
    a.settle(iterator, DELIVERED)
    assert machine.offsets() == {("orders", 0): 22}


def test_deliveries_survive_a_restart() -> None:
    machine, _, iterator = handing(5)
    again = machine.restarted().client("a")
    assert again.delivered() == {0: (0, 5)}
    assert again.commit(iterator, DELIVERED).position == 5


def test_a_commit_of_deliveries_may_be_repeated() -> None:
    machine, a, iterator = handing(5)
    following = a.settle(iterator, DELIVERED)
    before = len(machine.log)
    assert a.settle(iterator, DELIVERED) == following
    assert len(machine.log) == before
    a.deliver(following, 1)
    assert a.commit(iterator, DELIVERED).error is ErrorCode.ITERATOR_SETTLED


def test_a_commit_of_deliveries_is_refused_when_there_are_none() -> None:
    machine, a, iterator = handing(5)
    following = a.settle(iterator, DELIVERED)
    answer = a.commit(following, DELIVERED)
    assert answer.error is ErrorCode.NOTHING_DELIVERED
    assert "orders-0" in answer.detail
    assert machine.offsets() == {("orders", 0): 5}


@pytest.mark.parametrize("count", [-1, 0, 11, 2**31 - 1])
def test_the_delivered_count_must_be_between_1_and_messages_max(count: int) -> None:
    _, a, iterator = handing(5, messages_max=10)
    answer = a.deliver(iterator, count)
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert "Count must be 1 to 10" in answer.detail
    assert a.delivered() == {0: (0, 5)}


def test_an_iterator_without_an_offset_cannot_be_delivered() -> None:
    (a,) = driver().joined("a")
    assert a.deliver(a.get(0), 1).error is ErrorCode.INVALID_REQUEST


def test_a_recorded_delivery_restarts_the_iterators_time_in_flight() -> None:
    machine, a, iterator = handing(5)
    machine.pass_time(IN_FLIGHT_MS - 1_000)
    answer = a.deliver(iterator, 5)
    assert answer.given is not None
    assert answer.given.left_ms == IN_FLIGHT_MS
    machine.pass_time(IN_FLIGHT_MS - 1_000)
    assert machine.read(iterator) is ErrorCode.NONE, "its server was told"
    assert a.iterators() == [(0, 0)]


def test_a_delivery_does_not_delay_the_move_of_a_partition() -> None:
    machine, a, _ = handing(5)
    iterators = {number: replace(a.get(number), offset=0) for number in range(4)}
    (b,) = machine.joined("b")
    b.ask(0)
    (moving, *_) = sorted(set(range(4)) - {number for _, number in a.owned()})
    machine.pass_time(IN_FLIGHT_MS - 1_000)
    answer = a.deliver(iterators[moving], 7)
    assert answer.given is not None
    assert (answer.given.left_ms, answer.given.delivered) == (1_000, 7)
    machine.pass_time(1_000)
    a.heartbeat()
    assert ("orders", moving) in b.owned()
    assert moving not in a.delivered()
    assert a.commit(iterators[moving], DELIVERED).error is ErrorCode.NOT_OWNER


def test_an_expired_iterator_accepts_a_commit_and_no_further_delivery() -> None:
    machine, a, iterator = handing(5)
    machine.pass_time(IN_FLIGHT_MS)
    assert a.delivered() == {0: (0, 5)}
    assert a.deliver(iterator, 5).error is ErrorCode.ITERATOR_EXPIRED
    assert a.commit(iterator, DELIVERED).position == 5


def test_an_iterator_that_is_issued_again_has_no_deliveries() -> None:
    machine, a, iterator = handing(5)
    machine.pass_time(IN_FLIGHT_MS)
    a.get(0)
    assert a.delivered() == {}
    assert a.commit(iterator, DELIVERED).error is ErrorCode.ITERATOR_SETTLED


def test_deliveries_of_a_client_are_dropped_when_it_leaves() -> None:
    machine, a, iterator = handing(5)
    a.leave()
    assert a.commit(iterator, DELIVERED).error is ErrorCode.UNKNOWN_MEMBER_ID
    machine.joined("a")
    assert a.delivered() == {}
    assert a.commit(iterator, DELIVERED).error is not ErrorCode.NONE


def test_an_iterator_of_another_client_cannot_be_delivered() -> None:
    machine, _, iterator = handing(5)
    (b,) = machine.joined("b")
    assert b.deliver(iterator, 5).error is ErrorCode.FOREIGN_ITERATOR
