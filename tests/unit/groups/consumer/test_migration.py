"""Tests that groups convert from the classic protocol to the newer one and back while their members read."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders.groups.consumers import ClassicConsumer, Consumer, describe, request
from builders.groups.machine import Driver, offering
from builders.groups.topics import Topics
from millstream.groups.commands import ListGroups
from millstream.groups.responses import ConsumerHeartbeatResponse, GroupList, JoinResponse
from millstream.model.errors import ErrorCode

Member = Consumer | ClassicConsumer


def _driver(**settings: Any) -> Driver:
    return Driver(topics=Topics(orders=6, bills=4), **settings)


def _go_on(*members: Member, rounds: int = 12) -> None:
    """Lets every member take its steps. No partition may have two owners at any time."""
    for _ in range(rounds):
        for member in members:
            _step(member)
            _check_owners(members)


def _step(member: Member) -> None:
    if isinstance(member, Consumer):
        member.beat()
    else:
        member.step()


def _check_owners(members: tuple[Member, ...] | list[Member]) -> None:
    owned = [place for member in members for place in member.places]
    assert len(owned) == len(set(owned))


def _kind(driver: Driver) -> str:
    (listed,) = driver.ask(ListGroups(), GroupList).groups
    return listed.type


def _restarted(driver: Driver, *members: Member) -> Driver:
    """Returns a driver whose machine has replayed the log, and checks that its state is the same."""
    restarted = driver.restarted()
    assert sorted(restarted.machine.dump()) == sorted(driver.machine.dump())
    for member in members:
        member.move_to(restarted)
    return restarted


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_group_converts_to_the_consumer_protocol_and_back_while_reading(is_cooperative: bool) -> None:
    driver = _driver()
    old = [ClassicConsumer(driver, is_cooperative=is_cooperative) for _ in range(2)]
    _go_on(*old)
    assert (_kind(driver), [len(each.places) for each in old]) == ("classic", [3, 3])

    new = Consumer(driver, "new")
    new.join()
    assert _kind(driver) == "consumer"
    _go_on(*old, new)
    assert ([len(each.places) for each in old], len(new.places)) == ([2, 2], 2)
    assert describe(driver).state == "Stable"
    assert [member.is_classic for member in describe(driver).members] == [True, True, False]

    new.leave()
    assert _kind(driver) == "classic"
    assert old[0].step() is ErrorCode.REBALANCE_IN_PROGRESS, "it keeps what it has until it joins"
    _go_on(*old)
    assert sorted(len(each.places) for each in old) == [3, 3]
    _restarted(driver)


def test_a_group_keeps_the_consumer_protocol_after_its_last_classic_member_left() -> None:
    driver = _driver()
    old, new = ClassicConsumer(driver), Consumer(driver, "new")
    _go_on(old, rounds=3)
    _go_on(old, new)
    old.leave()
    _go_on(new, rounds=2)
    assert len(new.places) == 6
    assert not describe(driver).members[0].is_classic


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_classic_member_joins_a_group_of_the_consumer_protocol(is_cooperative: bool) -> None:
    driver = _driver()
    new, old = Consumer(driver, "new"), ClassicConsumer(driver, is_cooperative=is_cooperative)
    new.join()
    assert old.step() is ErrorCode.MEMBER_ID_REQUIRED
    _go_on(new, old)
    assert (len(new.places), len(old.places)) == (3, 3)
    assert not new.places & old.places


def test_members_pending_in_a_classic_rebalance_are_told_to_rejoin() -> None:
    driver = _driver()
    first, second = ClassicConsumer(driver), ClassicConsumer(driver)
    _go_on(first, rounds=3)
    while second.step() is not None:
        pass
    Consumer(driver, "new").join()
    assert second.step() is ErrorCode.REBALANCE_IN_PROGRESS
    assert not driver.waiting


def test_group_conversion_in_either_direction_survives_a_restart() -> None:
    driver = _driver()
    old, new = ClassicConsumer(driver), Consumer(driver, "new")
    _go_on(old, rounds=3)
    new.join()
    driver = _restarted(driver, old, new)
    _go_on(old, new)
    assert (len(old.places), len(new.places)) == (3, 3)
    new.leave()
    driver = _restarted(driver, old)
    _go_on(old)
    assert len(old.places) == 6


def test_committed_offsets_survive_the_conversion_of_a_group() -> None:
    driver = _driver()
    old, new = ClassicConsumer(driver), Consumer(driver, "new")
    _go_on(old, rounds=3)
    by = JoinResponse(generation=old.generation, member_id=old.member_id)
    assert driver.commit(("orders", 0, 7), by=by).error is ErrorCode.NONE
    new.join()
    assert driver.offsets() == {("orders", 0): 7}
    new.leave()
    assert driver.offsets() == {("orders", 0): 7}
    assert driver.restarted().offsets() == {("orders", 0): 7}


def test_an_empty_group_of_either_protocol_can_change_to_the_other() -> None:
    driver = _driver()
    old, new = ClassicConsumer(driver), Consumer(driver, "new")
    _go_on(old, rounds=3)
    old.leave()
    new.join()
    assert (_kind(driver), len(new.places)) == ("consumer", 6)
    new.leave()
    _go_on(old, rounds=3)
    assert (_kind(driver), len(old.places)) == ("classic", 6)
    _restarted(driver)


def test_a_classic_group_of_another_protocol_type_is_not_converted() -> None:
    driver = _driver()
    driver.join(protocol_type="connect")
    consumer = Consumer(driver, "new")
    answer = driver.ask(consumer._request(True), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "consumers" in answer.detail
    assert _kind(driver) == "classic"


def test_a_classic_group_with_unreadable_subscriptions_is_not_converted() -> None:
    driver = _driver()
    (joined,) = driver.stable(protocols=offering("range", metadata=b"\x00\x01\xff"))
    answer = driver.ask(Consumer(driver, "new")._request(True), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.heartbeat(joined).error is ErrorCode.NONE


def test_only_a_joining_member_converts_a_group() -> None:
    driver = _driver()
    _go_on(ClassicConsumer(driver), rounds=3)
    answer = driver.ask(request("new", 1), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert _kind(driver) == "classic"


@pytest.mark.parametrize("others", [0, 1])
def test_a_classic_member_replaces_a_static_member_of_the_consumer_protocol(others: int) -> None:
    driver = _driver()
    stays = [ClassicConsumer(driver) for _ in range(others)]
    new = Consumer(driver, "new", instance_id="i")
    _go_on(*stays, new)
    new.leave(epoch=-2)
    old = ClassicConsumer(driver, instance_id="i")
    _go_on(*stays, old)
    assert _kind(driver) == "classic"
    assert {place for each in (*stays, old) for place in each.places} == {("orders", number) for number in range(6)}


def test_a_static_classic_member_can_switch_to_the_consumer_protocol() -> None:
    driver = _driver()
    old = [ClassicConsumer(driver, instance_id=f"i{number}") for number in range(2)]
    _go_on(*old)
    had = old[0].places
    new = Consumer(driver, "new", instance_id="i0")
    old[0].places = set()
    new.join()
    _go_on(old[1], new)
    assert new.places == had
    assert len(describe(driver).members) == 2


class Migration(RuleBasedStateMachine):
    """Members of both protocols join and leave in any order. No partition may ever have two owners."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = _driver()
        self.members: list[Member] = []
        self.is_cooperative = False
        self._named = 0

    @initialize(is_cooperative=st.booleans())
    def choose(self, is_cooperative: bool) -> None:
        self.is_cooperative = is_cooperative

    @precondition(lambda self: len(self.members) < 6)
    @rule(is_classic=st.booleans(), topics=st.sampled_from([("orders",), ("orders", "bills")]))
    def come(self, is_classic: bool, topics: tuple[str, ...]) -> None:
        self._named += 1
        if is_classic:
            self.members.append(ClassicConsumer(self.driver, topics, self.is_cooperative))
        else:
            self.members.append(Consumer(self.driver, f"m{self._named}", topics))

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, 100), times=st.integers(1, 4))
    def step(self, index: int, times: int) -> None:
        for _ in range(times):
            _step(self.members[index % len(self.members)])

    @rule()
    def step_all(self) -> None:
        for member in self.members:
            _step(member)

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, 100))
    def leave(self, index: int) -> None:
        member = self.members.pop(index % len(self.members))
        if isinstance(member, ClassicConsumer) or member.epoch:
            member.leave()

    @rule(seconds=st.sampled_from([1, 31, 46]))
    def pass_time(self, seconds: int) -> None:
        self.driver.pass_time(seconds * 1000)
        known = {member.member_id for member in describe(self.driver).members}
        known |= {member.member_id for member in self.driver.describe().members}
        for member in self.members:
            if member.member_id not in known:
                member.forgotten()

    @rule()
    def restart(self) -> None:
        self.driver = _restarted(self.driver, *self.members)

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        _check_owners(self.members)

    def teardown(self) -> None:
        """Runs long enough for the expiry of members that left before a crash without a durable record."""
        for _ in range(60):
            for member in self.members:
                _step(member)
                _check_owners(self.members)
            self.driver.pass_time(5_000)
        restarted = self.driver.restarted()
        assert sorted(restarted.machine.dump()) == sorted(self.driver.machine.dump())
        wanted = {name for member in self.members for name in member.topics}
        read = {place for member in self.members for place in member.places}
        image = self.driver.topics
        assert isinstance(image, Topics)
        assert read == {place for place in image.partitions if place[0] in wanted}


TestMigration = Migration.TestCase
TestMigration.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
