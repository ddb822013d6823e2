"""Tests groups of the consumer protocol against a model of their members, for random sequences of events."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders.groups.consumers import Consumer, describe
from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.model.errors import ErrorCode

TOPICS = ("t0", "t1", "t2")
_any = st.integers(0, 100)


class Members(RuleBasedStateMachine):
    """Lets members, topics and time change at random. No partition may have two owners, epochs may not decrease, and
    the log must contain the state. Once the group is quiet, all partitions must be assigned evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(topics=Topics(t0=5, t1=3))
        self.consumers: list[Consumer] = []
        self.away: list[Consumer] = []
        self.group_epoch = 0
        self._named = 0

    @initialize(interval_ms=st.sampled_from([0, 1_000, 20_000]))
    def start(self, interval_ms: int) -> None:
        self.driver = Driver(topics=Topics(t0=5, t1=3), consumer_assignment_interval_ms=interval_ms)

    @property
    def topics(self) -> Topics:
        assert isinstance(self.driver.topics, Topics)
        return self.driver.topics

    def _pick(self, index: int) -> Consumer:
        return self.consumers[index % len(self.consumers)]

    def _name(self) -> str:
        self._named += 1
        return f"m{self._named}"

    @precondition(lambda self: len(self.consumers) < 6)
    @rule(
        topics=st.sets(st.sampled_from(TOPICS)),
        regex=st.sampled_from([None, "", "t[01]", "t.*"]),
        is_static=st.booleans(),
        assignor=st.sampled_from([None, None, "uniform", "range"]),
        is_answer_lost=st.booleans(),
    )
    def join(
        self, topics: set[str], regex: str | None, is_static: bool, assignor: str | None, is_answer_lost: bool
    ) -> None:
        name = self._name()
        consumer = Consumer(self.driver, name, tuple(topics), regex, f"i-{name}" if is_static else None, assignor)
        self.consumers.append(consumer)
        consumer.beat(is_answer_lost=is_answer_lost)

    @precondition(lambda self: self.consumers)
    @rule(index=_any, is_full=st.booleans(), is_answer_lost=st.booleans())
    def beat(self, index: int, is_full: bool, is_answer_lost: bool) -> None:
        self._pick(index).beat(full=is_full, is_answer_lost=is_answer_lost)

    @precondition(lambda self: self.consumers)
    @rule(index=_any)
    def join_again(self, index: int) -> None:
        self._pick(index).join()

    @precondition(lambda self: self.consumers)
    @rule(index=_any, topics=st.sets(st.sampled_from(TOPICS)), regex=st.sampled_from(["", "t[12]"]))
    def subscribe(self, index: int, topics: set[str], regex: str) -> None:
        self._pick(index).subscribe(*topics, regex=regex)

    @precondition(lambda self: self.consumers)
    @rule(index=_any)
    def leave(self, index: int) -> None:
        consumer = self._pick(index)
        self.consumers.remove(consumer)
        assert consumer.leave().error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)

    @precondition(lambda self: any(each.instance_id for each in self.consumers))
    @rule(index=_any)
    def step_out(self, index: int) -> None:
        static = [each for each in self.consumers if each.instance_id]
        consumer = static[index % len(static)]
        self.consumers.remove(consumer)
        if consumer.leave(epoch=-2).error is ErrorCode.NONE:
            self.away.append(consumer)

    @precondition(lambda self: self.away)
    @rule()
    def come_back(self) -> None:
        before = self.away.pop(0)
        consumer = Consumer(self.driver, self._name(), before.topics, before.regex, before.instance_id)
        consumer.join()
        self.consumers.append(consumer)

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 4))
    def make_or_grow_topic(self, name: str, more: int) -> None:
        known = self.topics.get(name)
        if known is None:
            self.topics.make(name, more)
        else:
            self.topics.grow(name, known.partitions + more)

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        if self.topics.get(name) is not None:
            self.topics.delete(name)

    @rule(seconds=st.sampled_from([1, 10, 31, 46]))
    def pass_time(self, seconds: int) -> None:
        self.driver.pass_time(seconds * 1000)
        known = {member.member_id for member in describe(self.driver).members}
        for consumer in self.consumers:
            if consumer.member_id not in known:
                consumer.forgotten()

    @rule()
    def restart(self) -> None:
        self._check_log()
        restarted = self.driver.restarted()
        self.driver = restarted
        for consumer in (*self.consumers, *self.away):
            consumer.move_to(restarted)

    def _check_log(self) -> None:
        durable = sorted(self.driver.machine.dump())
        assert sorted(self.driver.restarted().machine.dump()) == durable

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        owned = [each for consumer in self.consumers for each in consumer.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def epochs_do_not_go_back(self) -> None:
        described = describe(self.driver)
        assert described.assignment_epoch <= described.group_epoch
        if described.error is ErrorCode.NONE:
            assert described.group_epoch >= self.group_epoch
            self.group_epoch = described.group_epoch

    def teardown(self) -> None:
        while self.away:
            self.come_back()
        for _ in range(8):
            for consumer in self.consumers:
                consumer.beat()
                self.nobody_shares_a_partition()
            self.pass_time(10)
        self._check_log()
        if self.consumers:
            self._check_that_all_is_read_evenly()

    def _check_that_all_is_read_evenly(self) -> None:
        described = describe(self.driver)
        assert described.state == "Stable"
        reads = [self._reads(member.subscribed_topics, member.subscribed_regex) for member in described.members]
        read = {place for consumer in self.consumers for place in consumer.places}
        assert read == {place for place in self.topics.partitions if any(place[0] in each for each in reads)}
        if described.assignor == "uniform" and len(set(reads)) == 1:
            loads = [len(consumer.owned) for consumer in self.consumers]
            assert max(loads) - min(loads) <= 1

    def _reads(self, names: tuple[str, ...], regex: str | None) -> frozenset[str]:
        matched = {"": set(), "t[01]": {"t0", "t1"}, "t[12]": {"t1", "t2"}, "t.*": set(TOPICS)}[regex or ""]
        return frozenset(name for name in (*names, *matched) if self.topics.get(name) is not None)


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
