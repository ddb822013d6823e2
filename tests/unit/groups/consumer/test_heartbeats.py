"""Tests ConsumerGroupHeartbeat: validation, assignments, epochs and timeouts."""

from typing import Any

import pytest

from builders.groups.consumers import JOINING, REBALANCE_MS, SESSION_MS, Consumer, describe, request
from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.groups.commands import DescribeConsumerGroup, DescribeGroup, ListGroups, OwnedPartitions
from millstream.groups.responses import ConsumerGroupDescription, ConsumerHeartbeatResponse, GroupList
from millstream.model.errors import ErrorCode
from millstream.model.ids import TopicIdBytes


def _driver(**settings: Any) -> Driver:
    return Driver(topics=Topics(orders=6, bills=4), **settings)


def _ask(driver: Driver, member_id: str, epoch: int, **other: Any) -> ConsumerHeartbeatResponse:
    return driver.ask(request(member_id, epoch, **other), ConsumerHeartbeatResponse)


@pytest.mark.parametrize(
    ("member_id", "epoch", "other", "named"),
    [
        ("", 0, JOINING, "MemberId"),
        ("", 5, {"makes_member_id": True}, "MemberId"),
        ("", -1, {"makes_member_id": True}, "MemberId"),
        ("m", 0, JOINING | {"group_id": ""}, "GroupId"),
        ("m", 0, JOINING | {"instance_id": ""}, "InstanceId"),
        ("m", 0, JOINING | {"rack_id": ""}, "RackId"),
        ("m", 0, JOINING | {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ("m", 0, JOINING | {"owned": None}, "TopicPartitions"),
        ("m", 0, JOINING | {"owned": (OwnedPartitions(TopicIdBytes(bytes(16)), (0,)),)}, "TopicPartitions"),
        ("m", 0, JOINING | {"subscribed_topics": None}, "SubscribedTopicNames"),
        ("m", -2, {}, "InstanceId"),
        ("m", -3, {}, "MemberEpoch"),
    ],
)
def test_an_invalid_request_is_refused_with_the_name_of_the_field(
    member_id: str, epoch: int, other: dict[str, Any], named: str
) -> None:
    driver = _driver()
    answer = _ask(driver, member_id, epoch, **other)
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.detail.startswith(named)
    assert not driver.log


def test_an_unknown_assignor_is_refused_with_the_supported_names() -> None:
    answer = _ask(_driver(), "m", 0, **JOINING, server_assignor="fair")
    assert answer.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in answer.detail


def test_the_first_member_gets_all_partitions_immediately() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    answer = consumer.join()
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 1, 5_000)
    assert consumer.places == {("orders", number) for number in range(6)}
    assert describe(driver).state == "Stable"


def test_a_member_of_version_0_without_an_id_gets_one() -> None:
    answer = _ask(_driver(), "", 0, **JOINING, makes_member_id=True)
    assert answer.error is ErrorCode.NONE
    assert answer.member_id


def test_an_unchanged_heartbeat_returns_no_assignment_and_writes_no_records() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.beat()
    written = len(driver.log)
    assert consumer.beat().assignment is None
    assert len(driver.log) == written


def test_a_full_request_returns_the_assignment_again() -> None:
    consumer = Consumer(_driver(), "m")
    consumer.join()
    assert consumer.beat(full=True).assignment is not None


def test_a_member_may_join_without_any_topics() -> None:
    consumer = Consumer(_driver(), "m", topics=())
    assert consumer.join().assignment == ()


def test_a_subscribed_topic_is_assigned_once_it_is_created() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m", topics=("later",))
    assert consumer.join().assignment == ()
    consumer.image.make("later", 2)
    consumer.beat()
    assert consumer.places == {("later", 0), ("later", 1)}


def test_new_partitions_are_assigned_and_deleted_topics_are_revoked() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m", topics=("orders", "bills"))
    consumer.join()
    consumer.image.grow("orders", 8)
    consumer.image.delete("bills")
    for _ in range(3):
        consumer.beat()
    assert consumer.places == {("orders", number) for number in range(8)}
    assert {topic_id for topic_id, _ in consumer.owned} == {consumer.image.id_of("orders")}


def test_a_recreated_topic_of_the_same_name_is_a_different_topic() -> None:
    consumer = Consumer(_driver(), "m")
    consumer.join()
    consumer.image.delete("orders")
    consumer.image.make("orders", 1)
    for _ in range(3):
        consumer.beat()
    assert consumer.owned == {(consumer.image.id_of("orders"), 0)}


def test_changes_of_unsubscribed_topics_write_no_records() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.beat()
    written = len(driver.log)
    consumer.image.make("else", 3)
    consumer.beat()
    assert len(driver.log) == written


def test_a_full_group_refuses_new_members() -> None:
    driver = _driver(members_max=1)
    Consumer(driver, "m").join()
    assert _ask(driver, "n", 0, **JOINING).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert _ask(driver, "m", 0, **JOINING).error is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_a_heartbeat_without_a_join_fails_in_an_unknown_group(epoch: int) -> None:
    assert _ask(_driver(), "m", epoch, instance_id="i").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_heartbeat_of_a_non_member_gets_unknown_member_id() -> None:
    driver = _driver()
    Consumer(driver, "m").join()
    assert _ask(driver, "n", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert _ask(driver, "n", -1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_with_a_wrong_member_epoch_is_fenced() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    first.beat()
    first.beat()
    assert first.epoch == 2
    assert _ask(driver, "a", 3).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert _ask(driver, "a", 1).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_the_previous_epoch_is_fenced_only_when_unassigned_partitions_are_owned() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    first.beat()
    first.beat(is_answer_lost=True)
    answer = first.beat(full=True)
    assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, 2)
    assert answer.assignment is not None
    beyond = (OwnedPartitions(TopicIdBytes(first.image.id_of("orders")), tuple(range(6))),)
    assert _ask(driver, "a", 1, owned=beyond).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_join_can_be_repeated_after_its_answer_was_lost() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.beat(is_answer_lost=True)
    consumer.join()
    assert len(consumer.places) == 6
    assert len(describe(driver).members) == 1


def test_a_partition_is_assigned_only_after_its_owner_has_revoked_it() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    answer = second.join()
    assert (answer.member_epoch, second.places) == (2, set())
    assert describe(driver).state == "Reconciling"
    first.beat()
    assert (first.epoch, len(first.places)) == (1, 3)
    assert len(describe(driver).members[0].assignment[0].partitions) == 6, "what it has to give back, it still has"
    second.beat()
    assert second.places == set()
    first.beat()
    assert first.epoch == 2
    second.beat()
    assert len(second.places) == 3
    assert not first.places & second.places
    assert describe(driver).state == "Stable"


def test_a_heartbeat_that_omits_the_owned_partitions_confirms_no_revocation() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    for _ in range(3):
        _ask(driver, "a", 1)
        second.beat()
    assert second.places == set()


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    first.beat(is_answer_lost=True)
    for _ in range(4):
        driver.pass_time(REBALANCE_MS // 4)
        _ask(driver, "a", 1)
        second.beat()
    assert first.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    second.beat()
    assert len(second.places) == 6


def test_a_member_that_revokes_in_time_is_not_fenced_later() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    for _ in range(20):
        driver.pass_time(REBALANCE_MS // 4)
        first.beat()
        second.beat()
    assert (len(first.places), len(second.places)) == (3, 3)


def test_a_silent_member_is_removed_after_its_session_timeout() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    driver.pass_time(SESSION_MS - 1)
    assert consumer.beat().error is ErrorCode.NONE
    driver.pass_time(SESSION_MS)
    assert consumer.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert describe(driver).state == "Empty"


def test_a_leaving_member_frees_its_partitions_for_the_others() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    answer = first.leave()
    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "a", -1)
    assert describe(driver).state == "Assigning"
    second.beat()
    assert len(second.places) == 6


def test_a_member_that_changes_its_topics_first_revokes_the_old_ones() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.subscribe("bills")
    assert consumer.places == set()
    consumer.beat()
    assert consumer.places == {("bills", number) for number in range(4)}


def test_the_assignor_that_most_members_request_is_used() -> None:
    driver = _driver()
    members = [Consumer(driver, name, ("orders", "bills"), assignor="range") for name in "ab"]
    members.append(Consumer(driver, "c", ("orders", "bills"), assignor="uniform"))
    for member in members:
        member.join()
    for _ in range(4):
        for member in members:
            member.beat()
    assert describe(driver).assignor == "range"
    assert members[0].places == {("orders", 0), ("orders", 1), ("bills", 0), ("bills", 1)}


def test_a_consumer_group_is_described_and_listed_only_as_such() -> None:
    driver = _driver()
    Consumer(driver, "m", regex="b.*").join()
    described = describe(driver)
    assert (described.group_epoch, described.assignment_epoch, described.assignor) == (1, 1, "uniform")
    (member,) = described.members
    assert (member.member_id, member.subscribed_topics, member.subscribed_regex) == ("m", ("orders",), "b.*")
    assert member.assignment == member.target
    assert {topic.topic for topic in member.target} == {"orders", "bills"}
    assert driver.describe().error is ErrorCode.GROUP_ID_NOT_FOUND
    (listed,) = driver.ask(ListGroups(types=("consumer",), states=("stable",)), GroupList).groups
    assert listed == ("g", "consumer", "Stable", "consumer")
    assert not driver.ask(ListGroups(types=("classic",)), GroupList).groups
    unknown = driver.ask(DescribeConsumerGroup("other"), ConsumerGroupDescription)
    assert (unknown.error, unknown.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_a_group_can_be_deleted_only_without_members() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    assert driver.delete().error is ErrorCode.NON_EMPTY_GROUP
    consumer.leave()
    assert driver.delete().error is ErrorCode.NONE
    assert describe(driver).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(driver.restarted()).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_without_offsets_is_removed_after_a_while() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.leave()
    driver.pass_time(3_600_000)
    assert describe(driver).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.machine.next_deadline_ms is None


def test_members_keep_their_state_and_get_a_new_session_after_a_restart() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.driver = driver.restarted()
    assert consumer.beat().error is ErrorCode.NONE
    consumer.driver.pass_time(SESSION_MS)
    assert describe(consumer.driver).state == "Empty"


def test_describing_a_consumer_group_as_classic_explains_the_error() -> None:
    driver = _driver()
    Consumer(driver, "m").join()
    assert "not a classic group" in driver.ask(DescribeGroup("g"), type(driver.describe())).detail
