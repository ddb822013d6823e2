"""Tests GetIterator, ListIterators and CommitIterator: owners, offsets and times in flight."""

from typing import Any

import pytest
from msgspec.structs import replace

from builders.groups.iterator_clients import IN_FLIGHT_MAX_MS, IN_FLIGHT_MS, IteratorClient, IteratorDriver, driver
from builders.groups.topics import Topics
from millstream.groups.commands import CommitIterator, ListIterators
from millstream.groups.iterators.iterator import BEGINNING, END, MESSAGES_MAX
from millstream.groups.iterators.records import ITERATOR_KEY
from millstream.groups.machine_context import LOOK_EVERY_MS
from millstream.groups.records import key_version
from millstream.groups.responses import IteratorList, IteratorResponse
from millstream.model.errors import ErrorCode

TOPIC = ("orders", 0)


def alone() -> tuple[IteratorDriver, IteratorClient]:
    machine = driver()
    (client,) = machine.joined("a")
    return machine, client


def test_an_iterator_contains_its_start_offset_and_its_client() -> None:
    machine, a = alone()
    machine.commit(("orders", 1, 7), group_id="other")
    iterator = a.get(1, messages_max=20, in_flight_ms=5_000, start=END)
    assert (iterator.group_id, iterator.client_id, iterator.topic, iterator.partition) == ("g", "a", "orders", 1)
    assert (iterator.offset, iterator.messages_max, iterator.generation) == (END, 20, 2)
    assert iterator.expires_ms == machine.now.wall_ms + 5_000


def test_an_iterator_starts_at_the_committed_offset() -> None:
    machine, a = alone()
    following = a.settle(replace(a.get(0), offset=40), 2)
    assert following.offset == 42
    assert machine.offsets() == {TOPIC: 42}
    a.leave()
    (b,) = machine.joined("b")
    assert b.get(0, start=END).offset == 42


@pytest.mark.parametrize(
    ("said", "error", "named"),
    [
        ({"messages_max": 0}, ErrorCode.INVALID_REQUEST, "MaxMessages"),
        ({"messages_max": -5}, ErrorCode.INVALID_REQUEST, "MaxMessages"),
        ({"in_flight_ms": 0}, ErrorCode.INVALID_REQUEST, "InFlightMs"),
        ({"in_flight_ms": 999}, ErrorCode.INVALID_REQUEST, "InFlightMs"),
        ({"in_flight_ms": IN_FLIGHT_MAX_MS + 1}, ErrorCode.INVALID_REQUEST, "InFlightMs"),
        ({"start": 0}, ErrorCode.INVALID_REQUEST, "Start"),
        ({"topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nothing"),
        ({"partition": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partition 4"),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partition -1"),
    ],
)
def test_an_invalid_request_is_refused_without_effect(said: dict[str, Any], error: ErrorCode, named: str) -> None:
    machine, a = alone()
    before = len(machine.log)
    answer = a.ask(**said)
    assert answer.error is error
    assert named in answer.detail
    assert len(machine.log) == before


def test_the_message_count_of_an_iterator_is_limited_by_the_broker() -> None:
    _, a = alone()
    assert a.get(0, messages_max=2**31 - 1).messages_max == MESSAGES_MAX


def test_there_is_one_iterator_per_client_group_topic_and_partition() -> None:
    machine, a = alone()
    first = a.get(0)
    machine.pass_time(IN_FLIGHT_MS // 2)
    assert a.get(0, messages_max=7, in_flight_ms=60_000) == first
    assert a.get(1) != first
    assert a.get(0, "bills").topic == "bills"
    (elsewhere,) = [IteratorClient(machine, "a", "other")]
    elsewhere.join()
    assert elsewhere.get(0).life != first.life


def test_an_expired_iterator_is_issued_again_from_the_same_offset() -> None:
    machine, a = alone()
    first = a.get(0)
    machine.pass_time(IN_FLIGHT_MS - 1)
    assert a.get(0) == first
    machine.pass_time(1)
    second = a.get(0)
    assert (second.offset, second.issue) == (first.offset, first.issue + 1)
    assert second.expires_ms > first.expires_ms
    answer = a.commit(first, 0)
    assert answer.error is ErrorCode.ITERATOR_SETTLED


def test_a_partition_moves_only_after_its_iterator_is_committed() -> None:
    machine, a = alone()
    in_flight = {number: a.get(number) for number in range(4)}
    (b,) = machine.joined("b")
    b.ask(0)
    assert b.owned() == set()
    answers = {number: a.commit(iterator, 0) for number, iterator in in_flight.items()}
    kept = {number for number, answer in answers.items() if answer.given is not None}
    assert len(kept) == 2
    assert {number for _, number in b.owned()} == set(range(4)) - kept


def test_a_partition_moves_when_its_iterator_expires() -> None:
    machine, a = alone()
    for number in range(4):
        a.get(number)
    (b,) = machine.joined("b")
    b.ask(0)
    machine.pass_time(IN_FLIGHT_MS - 1)
    a.heartbeat()
    assert b.owned() == set()
    machine.pass_time(1)
    a.heartbeat()
    assert len(b.owned()) == 2


def test_a_commit_stores_the_position_and_returns_the_next_iterator() -> None:
    machine, a = alone()
    first = replace(a.get(0), offset=0)
    machine.pass_time(10_000)
    second = a.settle(first, 60)
    assert (second.offset, second.messages_max, second.issue) == (60, first.messages_max, first.issue + 1)
    assert second.expires_ms == machine.now.wall_ms + IN_FLIGHT_MS
    assert machine.offsets() == {TOPIC: 60}
    assert a.iterators() == [(0, 60)]


def test_an_iterator_with_an_advanced_offset_can_be_committed() -> None:
    machine, a = alone()
    chained = replace(a.get(0), offset=300)
    assert a.settle(chained, 5).offset == 305
    assert machine.offsets() == {TOPIC: 305}


def test_a_commit_of_0_messages_extends_the_time_in_flight() -> None:
    machine, a = alone()
    iterator = a.get(0)
    for _ in range(3):
        machine.pass_time(IN_FLIGHT_MS - 1)
        iterator = a.settle(iterator, 0)
        assert iterator.offset == BEGINNING
    assert machine.offsets() == {}


def test_a_late_commit_is_accepted_while_the_client_has_the_partition() -> None:
    machine, a = alone()
    late = replace(a.get(0), offset=0)
    machine.pass_time(IN_FLIGHT_MS + 5_000)
    assert a.settle(late, 10).offset == 10
    assert machine.offsets() == {TOPIC: 10}


def test_a_late_commit_is_refused_after_the_partition_has_moved() -> None:
    machine, a = alone()
    iterators = {number: replace(a.get(number), offset=0) for number in range(4)}
    (b,) = machine.joined("b")
    b.ask(0)
    machine.pass_time(IN_FLIGHT_MS)
    a.heartbeat()
    moved = {number for _, number in b.owned()}
    for number, iterator in iterators.items():
        expected = ErrorCode.NOT_OWNER if number in moved else ErrorCode.NONE
        assert a.commit(iterator, 10).error is expected
    assert {number for _, number in machine.offsets()} == set(range(4)) - moved


def test_a_commit_whose_answer_was_lost_can_be_repeated() -> None:
    machine, a = alone()
    first = replace(a.get(0), offset=0)
    once = a.commit(first, 60)
    log = len(machine.log)
    assert a.commit(first, 60) == once
    assert len(machine.log) == log
    assert a.commit(first, 61).error is ErrorCode.ITERATOR_SETTLED
    assert once.given is not None
    a.settle(once.given.iterator, 1)
    assert a.commit(first, 60).error is ErrorCode.ITERATOR_SETTLED
    assert machine.offsets() == {TOPIC: 61}


def test_only_the_last_commit_can_be_repeated_even_for_0_messages() -> None:
    _, a = alone()
    first = replace(a.get(0), offset=0)
    a.settle(a.settle(first, 0), 0)
    assert a.commit(first, 0).error is ErrorCode.ITERATOR_SETTLED


def test_the_last_commit_before_a_partition_moves_can_be_repeated() -> None:
    machine, a = alone()
    iterators = [replace(a.get(number), offset=0) for number in range(4)]
    (b,) = machine.joined("b")
    b.ask(0)
    for iterator in iterators:
        answer = a.commit(iterator, 3)
        assert (answer.error, answer.position) == (ErrorCode.NONE, 3)
        assert a.commit(iterator, 3) == answer
    assert set(machine.offsets().values()) == {3}


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"client_id": "b"}, ErrorCode.FOREIGN_ITERATOR),
        ({"group_id": "other"}, ErrorCode.FOREIGN_ITERATOR),
        ({"life": 1}, ErrorCode.ITERATOR_SETTLED),
        ({"issue": 7}, ErrorCode.ITERATOR_SETTLED),
        ({"topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": BEGINNING}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_commit_with_an_altered_iterator_is_refused(changed: dict[str, Any], error: ErrorCode) -> None:
    machine, a = alone()
    iterator = replace(a.get(0), **({"offset": 0} | changed))
    log = len(machine.log)
    assert machine.ask(CommitIterator("g", "a", iterator, 1), IteratorResponse).error is error
    assert len(machine.log) == log


@pytest.mark.parametrize("count", [-2, 101, 2**31 - 1])
def test_a_commit_count_outside_the_iterator_is_refused(count: int) -> None:
    _, a = alone()
    answer = a.commit(replace(a.get(0), offset=0), count)
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.detail.startswith("Count must be 0 to 100")


def test_a_rebalance_settles_the_owners_iterator_and_issues_a_new_generation() -> None:
    machine, a = alone()
    old = a.get(0)
    (b,) = machine.joined("b")
    b.ask(1)
    new = a.get(0)
    assert (new.generation, new.offset) == (old.generation + 1, old.offset)
    assert a.commit(old, 0).error is ErrorCode.ITERATOR_SETTLED


def test_a_commit_after_a_rebalance_returns_the_new_generation() -> None:
    machine, a = alone()
    old = replace(a.get(0), offset=0)
    (b,) = machine.joined("b")
    b.ask(1)
    new = a.settle(old, 8)
    assert (new.generation, new.offset) == (old.generation + 1, 8)


def test_list_iterators_returns_only_iterators_in_flight() -> None:
    machine, a = alone()
    for number in (2, 0):
        a.settle(replace(a.get(number), offset=10 * number), 1)
    assert a.iterators() == [(0, 1), (2, 21)]
    every = machine.ask(ListIterators("g", None), IteratorList)
    assert {(each.iterator.client_id, each.left_ms) for each in every.given} == {("a", IN_FLIGHT_MS)}
    machine.pass_time(IN_FLIGHT_MS)
    assert a.iterators() == []
    assert machine.ask(ListIterators("unknown", "a"), IteratorList).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert machine.ask(ListIterators("g", "stranger"), IteratorList) == IteratorList()


def test_a_client_that_left_has_no_iterators_in_flight() -> None:
    machine, a = alone()
    a.get(0)
    a.leave()
    assert machine.ask(ListIterators("g", None), IteratorList).given == ()


def test_a_client_that_rejoins_cannot_use_its_earlier_iterators() -> None:
    machine, a = alone()
    old = replace(a.get(0), offset=0)
    a.leave()
    a.join()
    a.get(1)
    assert a.iterators() == [(1, BEGINNING)]
    assert a.commit(old, 5).error is ErrorCode.ITERATOR_SETTLED
    assert machine.read(old) is ErrorCode.NONE, "its messages can be read as long as nothing newer was issued"
    assert not machine.server.has_next(old)
    a.get(0)
    assert machine.read(old) is ErrorCode.FENCED_ITERATOR


def test_a_recreated_topic_does_not_inherit_iterators_or_offsets() -> None:
    machine, a = alone()
    old = replace(a.get(0), offset=0)
    a.settle(old, 30)
    topics = machine.topics
    assert isinstance(topics, Topics)
    topics.delete("orders")
    machine.delete_topics("orders")
    assert a.ask(0).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics.make("orders", 4)
    new = a.get(0)
    assert (new.offset, new.issue) == (BEGINNING, 1)
    assert new.life != old.life
    assert a.commit(old, 1).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_iterators_in_flight_and_positions_survive_a_restart() -> None:
    machine, a = alone()
    a.settle(replace(a.get(0), offset=0), 5)
    iterator = a.get(1)
    machine.pass_time(10_000)
    again = machine.restarted()
    a = again.client("a")
    assert a.get(1) == iterator
    assert a.iterators() == [(0, 5), (1, BEGINNING)]
    assert again.offsets() == {TOPIC: 5}
    assert a.settle(replace(iterator, offset=3), 4).offset == 7
    again.pass_time(20_000)
    assert a.iterators() == [(1, 7)], "what was in flight before the restart is over when its time is"


@pytest.mark.parametrize(
    ("jump_ms", "left_ms"), [(0, 20_000), (-3_600_000, IN_FLIGHT_MS), (3_600_000, 0), (-5_000, 25_000)]
)
def test_a_clock_jump_during_a_restart_never_extends_the_time_in_flight(jump_ms: int, left_ms: int) -> None:
    machine, a = alone()
    a.get(0)
    machine.pass_time(10_000)
    machine.clock.wall_ahead_ms += jump_ms
    again = machine.restarted()
    given = again.ask(ListIterators("g", "a"), IteratorList).given
    assert [each.left_ms for each in given] == ([left_ms] if left_ms else [])


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_jump_does_not_change_the_time_in_flight(jump_ms: int) -> None:
    machine, a = alone()
    first = a.get(0)
    machine.clock.wall_ahead_ms += jump_ms
    machine.pass_time(IN_FLIGHT_MS - 1)
    assert a.get(0) == first
    assert machine.read(first) is ErrorCode.NONE
    machine.pass_time(1)
    assert a.get(0) != first


def test_unusable_iterators_are_removed_by_the_expiry_check() -> None:
    machine, a = alone()
    a.settle(replace(a.get(0), offset=0), 5)
    a.get(1)
    topics = machine.topics
    assert isinstance(topics, Topics)

    def issued() -> int:
        return sum(key_version(record.key) == ITERATOR_KEY for record in machine.machine.dump())

    def wait() -> None:
        for _ in range(LOOK_EVERY_MS // 20_000 + 1):
            machine.pass_time(20_000)
            a.heartbeat()

    wait()
    assert issued() == 2, "what a client has had last is kept as long as it is there"
    a.get(0, "bills")
    topics.delete("bills")
    wait()
    assert issued() == 2
    a.leave()
    wait()
    assert issued() == 0


def test_notices_of_issued_iterators_contain_the_remaining_time() -> None:
    machine, a = alone()
    iterator = a.get(0)
    machine.pass_time(20_000)
    assert len(machine.server) == 1
    a.get(0)
    machine.pass_time(10_000 - 1)
    assert machine.read(iterator) is ErrorCode.NONE
    machine.pass_time(1)
    assert machine.read(iterator) is ErrorCode.ITERATOR_EXPIRED


def test_the_server_is_notified_of_a_rebalance_before_new_iterators_are_issued() -> None:
    machine, a = alone()
    old = a.get(0)
    assert machine.server.has_next(old)
    (b,) = machine.joined("b")
    b.ask(1)
    assert machine.read(old) is ErrorCode.NONE, "it still returns its messages"
    assert not machine.server.has_next(old), "but no next one"
    a.get(0)
    assert machine.read(old) is ErrorCode.FENCED_ITERATOR
