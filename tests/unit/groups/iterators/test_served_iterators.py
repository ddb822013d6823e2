"""What the server of a partition makes of iterators, by what it was told and by what it has seen."""

from typing import Any

import pytest

from builders.groups.iterator_clients import IN_FLIGHT_MAX_MS, IN_FLIGHT_MS, JumpingClock
from millstream.groups.iterators.iterator import CLOCK_TOLERANCE_MS, Iterator, IteratorNotice, told_of
from millstream.groups.iterators.served_iterators import ServedIterators
from millstream.model.errors import ErrorCode, MillstreamError

HOUR_MS = 3_600_000


class Server:
    def __init__(self, **settings: Any) -> None:
        self.clock = JumpingClock()
        self.served = ServedIterators(self.clock, IN_FLIGHT_MAX_MS, **settings)

    def iterator(self, generation: int = 5, issue: int = 1, **other: Any) -> Iterator:
        fields: dict[str, Any] = {
            "group_id": "g",
            "client_id": "a",
            "topic": "orders",
            "topic_id": bytes(16),
            "partition": 0,
            "offset": 0,
            "messages_max": 10,
            "life": 77,
            "expires_ms": self.clock.wall_ms() + IN_FLIGHT_MS,
        }
        return Iterator(generation=generation, issue=issue, **(fields | other))

    def says(self, iterator: Iterator) -> ErrorCode:
        try:
            self.served.check(iterator)
        except MillstreamError as error:
            return error.code
        return ErrorCode.NONE

    def issued(self, iterator: Iterator, left_ms: int = IN_FLIGHT_MS) -> None:
        self.served.told(told_of(iterator, left_ms))

    def moved_on(self, generation: int) -> None:
        self.served.told(IteratorNotice("g", 77, bytes(16), 0, generation))


def test_a_server_that_knows_nothing_honours_what_is_signed_and_in_flight() -> None:
    server = Server()
    iterator = server.iterator()
    assert server.says(iterator) is ErrorCode.NONE
    assert server.served.has_next(iterator)


def test_generations_below_the_highest_that_was_told_are_refused() -> None:
    server = Server()
    server.issued(server.iterator(6))
    assert server.says(server.iterator(5)) is ErrorCode.FENCED_ITERATOR
    assert server.says(server.iterator(6)) is ErrorCode.NONE


def test_generations_below_the_highest_that_was_seen_are_refused() -> None:
    server = Server()
    assert server.says(server.iterator(5)) is ErrorCode.NONE
    assert server.says(server.iterator(6)) is ErrorCode.NONE
    assert server.says(server.iterator(5)) is ErrorCode.FENCED_ITERATOR


@pytest.mark.parametrize(
    "other", [{"partition": 1}, {"group_id": "h"}, {"topic_id": bytes([1]) * 16}, {"life": 78}], ids=str
)
def test_generations_count_for_each_group_and_partition_by_itself(other: dict[str, Any]) -> None:
    server = Server()
    server.issued(server.iterator(6))
    assert server.says(server.iterator(5, **other)) is ErrorCode.NONE


def test_an_old_iterator_is_read_without_a_next_one_until_a_newer_one_is_issued() -> None:
    server = Server()
    old = server.iterator(5)
    server.issued(old)
    server.moved_on(6)
    assert server.says(old) is ErrorCode.NONE
    assert not server.served.has_next(old)
    server.issued(server.iterator(6, 2))
    assert server.says(old) is ErrorCode.FENCED_ITERATOR


def test_what_is_told_late_does_not_bring_back_what_was() -> None:
    server = Server()
    server.issued(server.iterator(6, 9))
    server.moved_on(7)
    server.issued(server.iterator(5, 8))
    server.moved_on(4)
    assert server.says(server.iterator(5, 8)) is ErrorCode.FENCED_ITERATOR
    assert not server.served.has_next(server.iterator(6, 9))


def test_an_iterator_of_the_same_generation_that_was_committed_meanwhile_can_be_read_again_in_its_time() -> None:
    server = Server()
    first = server.iterator(5, 1)
    server.issued(server.iterator(5, 2))
    assert server.says(first) is ErrorCode.NONE
    server.clock.at_ms += IN_FLIGHT_MS + CLOCK_TOLERANCE_MS
    assert server.says(first) is ErrorCode.ITERATOR_EXPIRED


def test_what_was_told_is_in_flight_by_the_servers_own_monotonic_clock() -> None:
    server = Server()
    iterator = server.iterator()
    server.issued(iterator, 10_000)
    server.clock.wall_ahead_ms += HOUR_MS
    server.clock.at_ms += 9_999
    assert server.says(iterator) is ErrorCode.NONE
    server.clock.wall_ahead_ms -= 2 * HOUR_MS
    assert server.says(iterator) is ErrorCode.NONE
    server.clock.at_ms += 1
    assert server.says(iterator) is ErrorCode.ITERATOR_EXPIRED
    server.issued(iterator, 5_000)
    assert server.says(iterator) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("ahead_ms", "error"),
    [
        (0, ErrorCode.NONE),
        (IN_FLIGHT_MS + CLOCK_TOLERANCE_MS - 1, ErrorCode.NONE),
        (IN_FLIGHT_MS + CLOCK_TOLERANCE_MS, ErrorCode.ITERATOR_EXPIRED),
        (-CLOCK_TOLERANCE_MS, ErrorCode.NONE),
        (IN_FLIGHT_MS - IN_FLIGHT_MAX_MS - CLOCK_TOLERANCE_MS, ErrorCode.NONE),
        (IN_FLIGHT_MS - IN_FLIGHT_MAX_MS - CLOCK_TOLERANCE_MS - 1, ErrorCode.ITERATOR_EXPIRED),
        (HOUR_MS, ErrorCode.ITERATOR_EXPIRED),
        (-HOUR_MS, ErrorCode.ITERATOR_EXPIRED),
    ],
)
def test_what_comes_by_itself_is_held_against_the_wall_clock_with_a_tolerance(ahead_ms: int, error: ErrorCode) -> None:
    server = Server()
    iterator = server.iterator()
    server.clock.wall_ahead_ms += ahead_ms
    assert server.says(iterator) is error


def test_what_has_come_by_itself_runs_on_the_monotonic_clock_from_then_on() -> None:
    server = Server()
    iterator = server.iterator()
    assert server.says(iterator) is ErrorCode.NONE
    server.clock.wall_ahead_ms -= HOUR_MS
    server.clock.at_ms += IN_FLIGHT_MS + CLOCK_TOLERANCE_MS - 1
    assert server.says(iterator) is ErrorCode.NONE
    server.clock.at_ms += 1
    assert server.says(iterator) is ErrorCode.ITERATOR_EXPIRED


def test_what_a_server_knows_is_bounded() -> None:
    server = Server(known_max=100)
    for number in range(250):
        server.issued(server.iterator(partition=number))
    assert len(server.served) == 100
    assert server.says(server.iterator(4, partition=249)) is ErrorCode.FENCED_ITERATOR


def test_what_no_iterator_in_flight_can_be_older_than_is_forgotten() -> None:
    server = Server()
    for number in range(10):
        server.issued(server.iterator(partition=number))
        server.clock.at_ms += IN_FLIGHT_MAX_MS // 5
    assert len(server.served) == 6
