"""Tests iterator clients as members of their group: they join, get partitions, and leave."""

import pytest
from msgspec.structs import replace

from builders.groups.consumers import SESSION_MS, Consumer, describe
from builders.groups.iterator_clients import IN_FLIGHT_MS, driver
from millstream.groups.commands import IteratorJoin, ListGroups
from millstream.groups.responses import GroupList, IteratorClientResponse
from millstream.model.errors import ErrorCode


def test_a_joining_client_gets_no_partitions_before_it_requests_an_iterator() -> None:
    answer = driver().client().join()
    assert answer == IteratorClientResponse(
        generation=1, is_settled=True, heartbeat_interval_ms=5_000, session_timeout_ms=SESSION_MS
    )


def test_joining_again_has_no_effect() -> None:
    machine = driver()
    (a,) = machine.joined("a")
    a.get(3)
    before = sorted(machine.machine.dump())
    assert {(each.topic, each.partitions) for each in a.join().assignment} == {("orders", (0, 1, 2, 3))}
    assert sorted(machine.machine.dump()) == before


@pytest.mark.parametrize(
    ("group_id", "client_id", "error"),
    [
        ("", "a", ErrorCode.INVALID_GROUP_ID),
        ("g" * 256, "a", ErrorCode.INVALID_GROUP_ID),
        ("g", "", ErrorCode.INVALID_REQUEST),
        ("g", "ü" * 128, ErrorCode.INVALID_REQUEST),
    ],
)
def test_group_and_client_names_must_have_1_to_255_bytes(group_id: str, client_id: str, error: ErrorCode) -> None:
    machine = driver()
    assert machine.ask(IteratorJoin(group_id, client_id, "", ""), IteratorClientResponse).error is error
    assert not machine.log


def test_requests_of_a_client_that_has_not_joined_get_unknown_member_id() -> None:
    machine = driver()
    stranger = machine.client()
    machine.joined("b")
    assert stranger.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.ask().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_get_iterator_of_a_client_starts_a_rebalance() -> None:
    machine = driver()
    a, b = machine.joined("a", "b")
    assert a.get(0).generation == 2
    assert b.heartbeat().generation == 2
    assert b.ask(0).error is ErrorCode.NOT_OWNER
    assert (a.heartbeat().generation, b.heartbeat().generation) == (3, 3)
    a_has, b_has = a.owned(), b.owned()
    assert not a_has & b_has
    assert ("orders", 0) in a_has
    assert (len(a_has), len(b_has)) == (2, 2)


def test_partitions_of_a_leaving_client_move_to_the_others() -> None:
    machine = driver()
    a, b = machine.joined("a", "b")
    iterator = a.get(0)
    assert b.ask(0).error is ErrorCode.NOT_OWNER
    assert a.leave().error is ErrorCode.NONE
    assert b.get(0).offset == iterator.offset
    assert len(b.owned()) == 4


def test_partitions_of_a_silent_client_move_after_its_session_timeout() -> None:
    machine = driver()
    a, b = machine.joined("a", "b")
    a.get(0)
    b.ask(0)
    for _ in range(5):
        machine.pass_time(SESSION_MS // 5)
        b.heartbeat()
    assert b.get(0).client_id == "b"
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("sign_of_life", ["beat", "get", "commit"])
def test_every_request_of_a_client_counts_as_a_heartbeat(sign_of_life: str) -> None:
    machine = driver()
    (a,) = machine.joined("a")
    iterator = a.get(0)
    for _ in range(5):
        machine.pass_time(SESSION_MS // 2)
        match sign_of_life:
            case "beat":
                a.heartbeat()
            case "get":
                a.get(1)
            case "commit":
                iterator = a.settle(iterator, 0)
    assert a.heartbeat().error is ErrorCode.NONE


def test_a_heartbeat_reports_whether_the_assignment_of_a_client_is_complete() -> None:
    machine = driver(consumer_assignment_interval_ms=1_000)
    a, b = machine.joined("a", "b")
    a.get(0)
    assert a.heartbeat().is_settled, "the first who asks is given everything at once"
    b.ask(0)
    assert not b.heartbeat().is_settled, "the partitions were shared out a moment ago"
    machine.pass_time(1_000)
    assert b.heartbeat().is_settled or a.heartbeat().is_settled


def test_clients_and_consumers_of_the_consumer_protocol_can_share_a_group() -> None:
    machine = driver()
    (a,) = machine.joined("a")
    a.get(0)
    consumer = Consumer(machine, "m")
    consumer.join()
    for _ in range(3):
        machine.pass_time(IN_FLIGHT_MS)
        a.heartbeat()
        consumer.beat()
    assert len(a.owned()) == len(consumer.places) == 2
    assert not a.owned() & consumer.places
    (described,) = (each for each in describe(machine).members if each.member_id == "iterators/a")
    assert (described.client_id, described.client_host) == ("program", "/127.0.0.1")
    assert described.subscribed_topics == ("orders",)


def test_a_group_with_iterator_clients_is_listed_and_cannot_be_deleted() -> None:
    machine = driver()
    (a,) = machine.joined("a")
    a.settle(replace(a.get(0), offset=0), 5)
    listed = machine.ask(ListGroups(), GroupList).groups
    assert [(each.group_id, each.type) for each in listed] == [("g", "consumer")]
    assert machine.delete().error is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert machine.delete().error is ErrorCode.NONE
    assert not list(machine.machine.dump()), "nothing is left of the group, not even what it had issued"


def test_added_partitions_are_assigned_to_clients() -> None:
    machine = driver()
    (a,) = machine.joined("a")
    a.get(0)
    assert a.ask(4).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    machine.topics.grow("orders", 6)  # type: ignore[attr-defined]
    assert a.get(5).generation > 2


def test_a_consumer_with_the_name_of_a_client_is_a_different_member() -> None:
    machine = driver()
    Consumer(machine, "a").join()
    a = machine.client("a")
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    a.join()
    assert {each.member_id for each in describe(machine).members} == {"a", "iterators/a"}
