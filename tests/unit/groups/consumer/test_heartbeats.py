"""ConsumerGroupHeartbeat: what is refused, who gets what, who is heard of."""

from typing import Any

import pytest

from builders.groups.consumers import JOINING, REBALANCE_MS, SESSION_MS, Consumer, describe, request
from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.groups.commands import DescribeConsumerGroup, DescribeGroup, ListGroups, OwnedPartitions
from millstream.groups.responses import ConsumerGroupDescription, ConsumerHeartbeatResponse, GroupList
from millstream.model.errors import ErrorCode


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
        ("m", 0, JOINING | {"owned": (OwnedPartitions(bytes(16), (0,)),)}, "TopicPartitions"),
        ("m", 0, JOINING | {"subscribed_topics": None}, "SubscribedTopicNames"),
        ("m", -2, {}, "InstanceId"),
        ("m", -3, {}, "MemberEpoch"),
    ],
)
def test_a_request_that_contradicts_the_protocol_is_told_which_field_is_wrong(
    member_id: str, epoch: int, other: dict[str, Any], named: str
) -> None:
    driver = _driver()
    answer = _ask(driver, member_id, epoch, **other)
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.detail.startswith(named)
    assert not driver.log


def test_an_unknown_assignor_is_refused_and_the_known_ones_are_named() -> None:
    answer = _ask(_driver(), "m", 0, **JOINING, server_assignor="fair")
    assert answer.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in answer.detail


def test_the_first_member_gets_everything_at_once() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    answer = consumer.join()
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 1, 5_000)
    assert consumer.places == {("orders", number) for number in range(6)}
    assert describe(driver).state == "Stable"


def test_a_member_without_an_id_is_given_one_where_its_version_asks_for_it() -> None:
    answer = _ask(_driver(), "", 0, **JOINING, makes_member_id=True)
    assert answer.error is ErrorCode.NONE
    assert answer.member_id


def test_a_heartbeat_that_changes_nothing_brings_no_assignment_and_writes_nothing() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.beat()
    written = len(driver.log)
    assert consumer.beat().assignment is None
    assert len(driver.log) == written


def test_a_full_request_brings_the_assignment_again() -> None:
    consumer = Consumer(_driver(), "m")
    consumer.join()
    assert consumer.beat(full=True).assignment is not None


def test_a_member_may_belong_to_a_group_without_reading_anything() -> None:
    consumer = Consumer(_driver(), "m", topics=())
    assert consumer.join().assignment == ()


def test_a_topic_that_does_not_exist_yet_is_read_once_it_does() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m", topics=("later",))
    assert consumer.join().assignment == ()
    consumer.image.make("later", 2)
    consumer.beat()
    assert consumer.places == {("later", 0), ("later", 1)}


def test_new_partitions_are_given_out_and_deleted_topics_are_taken_back() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m", topics=("orders", "bills"))
    consumer.join()
    consumer.image.grow("orders", 8)
    consumer.image.delete("bills")
    for _ in range(3):
        consumer.beat()
    assert consumer.places == {("orders", number) for number in range(8)}
    assert {topic_id for topic_id, _ in consumer.owned} == {consumer.image.id_of("orders")}


def test_a_topic_made_anew_under_its_old_name_is_another_topic() -> None:
    consumer = Consumer(_driver(), "m")
    consumer.join()
    consumer.image.delete("orders")
    consumer.image.make("orders", 1)
    for _ in range(3):
        consumer.beat()
    assert consumer.owned == {(consumer.image.id_of("orders"), 0)}


def test_a_change_of_topics_that_the_group_does_not_read_changes_nothing() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.beat()
    written = len(driver.log)
    consumer.image.make("else", 3)
    consumer.beat()
    assert len(driver.log) == written


def test_a_group_has_no_more_members_than_it_may() -> None:
    driver = _driver(members_max=1)
    Consumer(driver, "m").join()
    assert _ask(driver, "n", 0, **JOINING).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert _ask(driver, "m", 0, **JOINING).error is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_who_does_not_join_is_told_that_there_is_no_such_group(epoch: int) -> None:
    assert _ask(_driver(), "m", epoch, instance_id="i").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_somebody_who_is_no_member_is_told_so() -> None:
    driver = _driver()
    Consumer(driver, "m").join()
    assert _ask(driver, "n", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert _ask(driver, "n", -1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_with_another_epoch_than_its_own_is_fenced() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    first.beat()
    first.beat()
    assert first.epoch == 2
    assert _ask(driver, "a", 3).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert _ask(driver, "a", 1).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_the_epoch_before_is_accepted_from_a_member_that_missed_an_answer_and_has_nothing_more_than_it_may() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    first.beat()
    first.beat(is_answer_lost=True)
    answer = first.beat(full=True)
    assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, 2)
    assert answer.assignment is not None
    beyond = (OwnedPartitions(first.image.id_of("orders"), tuple(range(6))),)
    assert _ask(driver, "a", 1, owned=beyond).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_whose_answer_to_the_join_was_lost_joins_again_and_gets_the_same() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.beat(is_answer_lost=True)
    consumer.join()
    assert len(consumer.places) == 6
    assert len(describe(driver).members) == 1


def test_a_partition_goes_to_the_next_owner_only_after_the_last_one_has_given_it_back() -> None:
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


def test_silence_about_what_is_owned_is_no_sign_of_having_given_it_back() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    for _ in range(3):
        _ask(driver, "a", 1)
        second.beat()
    assert second.places == set()


def test_a_member_that_does_not_give_back_in_time_is_fenced() -> None:
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


def test_a_member_that_gives_back_in_time_is_not_fenced_later() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    for _ in range(20):
        driver.pass_time(REBALANCE_MS // 4)
        first.beat()
        second.beat()
    assert (len(first.places), len(second.places)) == (3, 3)


def test_a_member_that_is_silent_for_a_session_is_gone() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    driver.pass_time(SESSION_MS - 1)
    assert consumer.beat().error is ErrorCode.NONE
    driver.pass_time(SESSION_MS)
    assert consumer.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert describe(driver).state == "Empty"


def test_who_leaves_frees_its_partitions_for_the_others() -> None:
    driver = _driver()
    first, second = Consumer(driver, "a"), Consumer(driver, "b")
    first.join()
    second.join()
    answer = first.leave()
    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "a", -1)
    assert describe(driver).state == "Assigning"
    second.beat()
    assert len(second.places) == 6


def test_a_member_that_changes_its_topics_gives_back_the_old_ones_first() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.subscribe("bills")
    assert consumer.places == set()
    consumer.beat()
    assert consumer.places == {("bills", number) for number in range(4)}


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
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


def test_a_group_is_described_and_listed_by_its_own_kind_only() -> None:
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


def test_a_group_can_be_deleted_when_nobody_is_in_it() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    assert driver.delete().error is ErrorCode.NON_EMPTY_GROUP
    consumer.leave()
    assert driver.delete().error is ErrorCode.NONE
    assert describe(driver).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(driver.restarted()).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_without_offsets_goes_by_itself() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.leave()
    driver.pass_time(3_600_000)
    assert describe(driver).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.machine.next_deadline_ms is None


def test_members_go_on_where_they_were_after_a_restart() -> None:
    driver = _driver()
    consumer = Consumer(driver, "m")
    consumer.join()
    consumer.driver = driver.restarted()
    assert consumer.beat().error is ErrorCode.NONE
    consumer.driver.pass_time(SESSION_MS)
    assert describe(consumer.driver).state == "Empty"


def test_a_describe_of_the_classic_kind_names_the_reason() -> None:
    driver = _driver()
    Consumer(driver, "m").join()
    assert "not a classic group" in driver.ask(DescribeGroup("g"), type(driver.describe())).detail
