"""Tests watches of members: they are answered when a heartbeat would change the member's partitions, and only then."""

from random import Random

from builders.groups.consumers import SESSION_MS, ClassicConsumer, Consumer, describe
from builders.groups.machine import Driver
from builders.groups.topics import Topics
from builders.loops import for_each
from millstream.coordination.effects import Token
from millstream.groups.commands import WatchMember
from millstream.groups.responses import EmptyResponse
from millstream.model.errors import ErrorCode

INTERVAL_MS = 200
HEARTBEAT_MS = 5_000


def driver_of(partitions: int = 6, interval_ms: int = 0) -> Driver:
    return Driver(topics=Topics(orders=partitions), consumer_assignment_interval_ms=interval_ms)


class WatchingConsumer:
    """A member that sends heartbeats only when its watch is answered or when it has partitions to give back."""

    def __init__(self, driver: Driver, member_id: str, instance_id: str | None = None) -> None:
        self.driver = driver
        self.member = Consumer(driver, member_id, instance_id=instance_id)
        self.heartbeats = 0
        self._token: Token = -1

    @property
    def places(self) -> set[tuple[str, int]]:
        return self.member.places

    @property
    def is_due(self) -> bool:
        return self._token in self.driver.answers

    def join(self) -> "WatchingConsumer":
        assert self.member.join().error is ErrorCode.NONE
        return self.watch()

    def watch(self) -> "WatchingConsumer":
        self._token = self.driver.send(WatchMember("g", self.member.member_id))
        return self

    def step(self) -> bool:
        """Follows an answered watch. Returns False if the watch is open."""
        if not self.is_due:
            return False
        owned = set(self.member.owned)
        self.heartbeats += 1
        answer = self.member.beat()
        if answer.error is ErrorCode.NONE and owned - self.member.owned:
            self.heartbeats += 1
            self.member.beat()
        if self.member.epoch == 0:
            self.member.join()
        self.watch()
        return True


def settle(consumers: list[WatchingConsumer]) -> None:
    """Lets members follow their watches until all watches are open."""
    while any(each.step() for each in consumers):
        pass


def joined(driver: Driver, count: int) -> list[WatchingConsumer]:
    consumers = [WatchingConsumer(driver, f"m{number}").join() for number in range(count)]
    driver.pass_time(INTERVAL_MS)
    settle(consumers)
    return consumers


def test_no_watch_is_answered_while_the_group_is_stable() -> None:
    driver = driver_of()
    consumers = joined(driver, 3)
    for _ in range(3):
        driver.pass_time(HEARTBEAT_MS)
        for each in consumers:
            each.member.beat()
    assert not any(each.is_due for each in consumers)
    assert describe(driver).state == "Stable"


def test_a_leave_costs_each_gaining_member_one_heartbeat() -> None:
    driver = driver_of(interval_ms=INTERVAL_MS)
    first, *others = joined(driver, 3)
    driver.pass_time(INTERVAL_MS)
    before = [each.heartbeats for each in others]
    first.member.leave()
    assert all(each.is_due for each in others)
    settle(others)
    assert [len(each.places) for each in others] == [3, 3]
    assert [each.heartbeats for each in others] == [count + 1 for count in before]


def test_a_join_costs_the_previous_owner_two_heartbeats() -> None:
    driver = driver_of(interval_ms=INTERVAL_MS)
    (first,) = joined(driver, 1)
    driver.pass_time(INTERVAL_MS)
    second = WatchingConsumer(driver, "second").join()
    assert (first.is_due, second.is_due) == (True, False)
    before = first.heartbeats
    first.step()
    assert second.is_due
    settle([first, second])
    assert (len(first.places), len(second.places)) == (3, 3)
    assert (first.heartbeats, second.heartbeats) == (before + 2, 1)


def test_watches_are_answered_when_a_delayed_assignment_is_computed() -> None:
    driver = driver_of(interval_ms=INTERVAL_MS)
    first, *others = joined(driver, 3)
    first.member.leave()
    assert not any(each.is_due for each in others)
    driver.pass_time(INTERVAL_MS)
    settle(others)
    assert [len(each.places) for each in others] == [3, 3]


def test_watching_members_take_over_partitions_of_an_expired_member() -> None:
    driver = driver_of()
    _silent, *others = joined(driver, 3)
    for _ in range(SESSION_MS // HEARTBEAT_MS):
        driver.pass_time(HEARTBEAT_MS)
        for each in others:
            each.member.beat()
    settle(others)
    assert [len(each.places) for each in others] == [3, 3]


def test_the_watch_of_a_member_is_answered_when_its_session_expires() -> None:
    driver = driver_of()
    silent, *_ = joined(driver, 2)
    driver.pass_time(SESSION_MS)
    assert silent.is_due
    assert silent.member.beat().error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


def test_a_watch_opened_after_the_change_is_answered_immediately() -> None:
    driver = driver_of()
    late, other = Consumer(driver, "late"), Consumer(driver, "other")
    late.join()
    other.join()
    assert WatchingConsumer(driver, "late").watch().is_due


def test_a_pending_assignment_is_computed_when_a_watch_is_opened() -> None:
    driver = driver_of()
    members = [Consumer(driver, f"m{number}") for number in range(3)]
    for _ in range(4):
        for each in members:
            each.beat()
    members[0].leave()
    assert describe(driver).state == "Assigning"
    assert WatchingConsumer(driver, "m1").watch().is_due


def test_an_assignment_waits_for_the_next_heartbeat_when_no_member_has_a_watch() -> None:
    driver = driver_of()
    members = [Consumer(driver, f"m{number}") for number in range(3)]
    for _ in range(4):
        for each in members:
            each.beat()
    members[0].leave()
    driver.pass_time(1_000)
    described = describe(driver)
    assert (described.state, described.assignment_epoch) == ("Assigning", described.group_epoch - 1)


def test_a_second_watch_of_a_member_answers_the_first() -> None:
    driver = driver_of()
    (first,) = joined(driver, 1)
    again = WatchingConsumer(driver, "m0").watch()
    assert (first.is_due, again.is_due) == (True, False)


def test_a_watch_of_an_unknown_member_or_group_is_refused() -> None:
    driver = driver_of()
    assert driver.ask(WatchMember("g", "m0"), EmptyResponse).error is ErrorCode.GROUP_ID_NOT_FOUND
    joined(driver, 1)
    assert driver.ask(WatchMember("g", "nobody"), EmptyResponse).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_watch_does_not_extend_the_session() -> None:
    driver = driver_of()
    (first,) = joined(driver, 1)
    driver.pass_time(SESSION_MS - 1)
    first.watch()
    driver.pass_time(1)
    assert describe(driver).members == ()


def test_watches_are_answered_when_the_group_becomes_classic() -> None:
    driver = driver_of()
    (new,) = joined(driver, 1)
    classic = ClassicConsumer(driver)
    for _ in range(2):
        classic.step()
    new.member.leave()
    assert new.is_due
    assert driver.ask(WatchMember("g", "m0"), EmptyResponse).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_watches_of_a_static_member_are_answered_when_it_leaves_and_is_replaced() -> None:
    driver = driver_of()
    before = WatchingConsumer(driver, "before", instance_id="i").join()
    before.member.leave(epoch=-2)
    assert before.is_due
    away = WatchingConsumer(driver, "before").watch()
    WatchingConsumer(driver, "after", instance_id="i").join()
    assert away.is_due


@for_each("seed", range(60))
def test_watching_members_settle_without_regular_heartbeats(seed: int) -> None:
    """Members join, leave and follow their watches in random order. The group must become stable although no member
    sends a heartbeat without a reason, and no partition may ever have two owners."""
    chance = Random(seed)
    partitions = chance.randrange(1, 12)
    driver = driver_of(partitions, interval_ms=chance.choice([0, INTERVAL_MS]))
    consumers: list[WatchingConsumer] = []
    for number in range(60):
        match chance.randrange(4):
            case 0 if len(consumers) < 5:
                consumers.append(WatchingConsumer(driver, f"m{number}").join())
            case 1 if consumers:
                consumers.pop(chance.randrange(len(consumers))).member.leave()
            case 2 if consumers:
                chance.choice(consumers).step()
            case _:
                driver.pass_time(chance.choice([1, INTERVAL_MS]))
        owned = [place for each in consumers for place in each.places]
        assert len(owned) == len(set(owned))
    consumers.append(WatchingConsumer(driver, "last").join())
    for _ in range(3):
        settle(consumers)
        driver.pass_time(INTERVAL_MS)
    sizes = [len(each.places) for each in consumers]
    assert sum(sizes) == partitions
    assert max(sizes) - min(sizes) <= 1
    assert not any(each.is_due for each in consumers)
