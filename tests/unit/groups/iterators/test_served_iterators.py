"""Tests how the server of a partition checks iterators, with and without notices of the coordinator."""

from typing import Any

import pytest

from builders.groups.iterator_clients import IN_FLIGHT_MAX_MS, IN_FLIGHT_MS, JumpingClock
from millstream.groups.iterators.iterator import CLOCK_TOLERANCE_MS, Iterator, IteratorNotice, told_of
from millstream.groups.iterators.served_iterators import ServedIterators
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicIdBytes

HOUR_MS = 3_600_000


class Server:
    """The checks of one server, with a clock that can jump."""

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
        self.served.told(IteratorNotice("g", 77, TopicIdBytes(bytes(16)), 0, generation))


def test_a_server_accepts_an_iterator_in_flight_that_was_not_announced_to_it() -> None:
    server = Server()
    iterator = server.iterator()
    assert server.says(iterator) is ErrorCode.NONE
    assert server.served.has_next(iterator)


def test_generations_below_the_highest_announced_one_are_fenced() -> None:
    server = Server()
    server.issued(server.iterator(6))
    assert server.says(server.iterator(5)) is ErrorCode.FENCED_ITERATOR
    assert server.says(server.iterator(6)) is ErrorCode.NONE


def test_generations_below_the_highest_seen_one_are_fenced() -> None:
    server = Server()
    assert server.says(server.iterator(5)) is ErrorCode.NONE
    assert server.says(server.iterator(6)) is ErrorCode.NONE
    assert server.says(server.iterator(5)) is ErrorCode.FENCED_ITERATOR


@pytest.mark.parametrize(
    "other", [{"partition": 1}, {"group_id": "h"}, {"topic_id": bytes([1]) * 16}, {"life": 78}], ids=str
)
def test_generations_are_tracked_per_group_and_partition(other: dict[str, Any]) -> None:
    server = Server()
    server.issued(server.iterator(6))
    assert server.says(server.iterator(5, **other)) is ErrorCode.NONE


def test_an_old_iterator_can_be_read_until_a_newer_one_is_issued() -> None:
    server = Server()
    old = server.iterator(5)
    server.issued(old)
    server.moved_on(6)
    assert server.says(old) is ErrorCode.NONE
    assert not server.served.has_next(old)
    server.issued(server.iterator(6, 2))
    assert server.says(old) is ErrorCode.FENCED_ITERATOR


def test_late_notices_do_not_restore_older_generations() -> None:
    server = Server()
    server.issued(server.iterator(6, 9))
    server.moved_on(7)
    server.issued(server.iterator(5, 8))
    server.moved_on(4)
    assert server.says(server.iterator(5, 8)) is ErrorCode.FENCED_ITERATOR
    assert not server.served.has_next(server.iterator(6, 9))


def test_a_committed_iterator_can_be_read_until_it_expires() -> None:
    server = Server()
    first = server.iterator(5, 1)
    server.issued(server.iterator(5, 2))
    assert server.says(first) is ErrorCode.NONE
    server.clock.at_ms += IN_FLIGHT_MS + CLOCK_TOLERANCE_MS
    assert server.says(first) is ErrorCode.ITERATOR_EXPIRED


def test_an_announced_iterator_expires_by_the_monotonic_clock() -> None:
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
def test_an_unannounced_iterator_is_checked_against_the_wall_clock(ahead_ms: int, error: ErrorCode) -> None:
    server = Server()
    iterator = server.iterator()
    server.clock.wall_ahead_ms += ahead_ms
    assert server.says(iterator) is error


def test_a_known_iterator_expires_on_time_after_the_wall_clock_is_set_back() -> None:
    server = Server()
    iterator = server.iterator()
    assert server.says(iterator) is ErrorCode.NONE
    server.clock.wall_ahead_ms -= HOUR_MS
    server.clock.at_ms += IN_FLIGHT_MS + CLOCK_TOLERANCE_MS - 1
    assert server.says(iterator) is ErrorCode.NONE
    server.clock.at_ms += 1
    assert server.says(iterator) is ErrorCode.ITERATOR_EXPIRED


def test_the_server_keeps_a_limited_number_of_iterator_entries() -> None:
    server = Server(known_max=100)
    for number in range(250):
        server.issued(server.iterator(partition=number))
    assert len(server.served) == 100
    assert server.says(server.iterator(4, partition=249)) is ErrorCode.FENCED_ITERATOR


def test_server_entries_are_removed_when_no_iterator_can_be_in_flight() -> None:
    server = Server()
    for number in range(10):
        server.issued(server.iterator(partition=number))
        server.clock.at_ms += IN_FLIGHT_MAX_MS // 5
    assert len(server.served) == 6
