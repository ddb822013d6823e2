"""Compares the machine with a simple model of a classic group, for random sequences of events."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builders.groups.classic_model import REBALANCE_MS, SESSION_MS, ModelGroup
from builders.groups.machine import Driver, offering, subscription
from builders.loops import for_each
from millstream.coordination.effects import LogRecord, Token
from millstream.groups.commands import AssignedBytes
from millstream.groups.responses import JoinResponse, SyncResponse
from millstream.model.errors import ErrorCode

GROUPS = ("g",)
INSTANCES = (None, None, "i0", "i0")
"""Instance ids of the clients; two clients claim the same one."""
TOPICS = ("orders", "other", "free")
SUBSCRIPTIONS = (("orders",), ("orders", "other"))
ANCHOR = ("anchor", 0)
"""Every group has a committed offset here, so that no group is removed for being empty."""
PAUSES_MS = (500, 9_000, REBALANCE_MS, SESSION_MS)


@dataclass
class Client:
    """A client, and the latest answers that it got."""

    group_id: str
    instance_id: str | None
    member_id: str = ""
    generation: int = 0
    members: tuple[str, ...] = ()
    """Members of the group, as the answer to the leader's join listed them."""


CLIENTS = len(GROUPS) * len(INSTANCES)
clients = st.integers(0, CLIENTS - 1)
topics = st.sampled_from(TOPICS)


class ClassicGroups(RuleBasedStateMachine):
    """Applies each step to the machine and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.clients = [Client(group_id, instance_id) for group_id in GROUPS for instance_id in INSTANCES]
        self.model = {group_id: ModelGroup() for group_id in GROUPS}
        self.stored = {group_id: ModelGroup() for group_id in GROUPS}
        self.joins: dict[Token, Client] = {}
        self.syncs: dict[Token, tuple[str, int, str]] = {}
        self.assigned: dict[tuple[str, int, str], bytes] = {}
        self.offset = 0

    @initialize()
    def anchor(self) -> None:
        for group_id in GROUPS:
            self._anchor(group_id)

    def _anchor(self, group_id: str) -> None:
        assert self.driver.commit((*ANCHOR, 1), group_id=group_id).error is ErrorCode.NONE
        self.model[group_id].offsets[ANCHOR] = 1

    def _next(self, number: int) -> Client:
        """Returns a client after 1 ms has passed, so that no two timers are due at the same time; their order is not
        specified."""
        self.pass_time(1)
        return self.clients[number]

    # Steps of clients.

    @rule(number=clients, topics=st.sampled_from(SUBSCRIPTIONS))
    def join(self, number: int, topics: tuple[str, ...]) -> None:
        client = self._next(number)
        model = self.model[client.group_id]
        metadata = subscription(*topics)
        token = self.driver.send_join(
            client.member_id,
            client.group_id,
            instance_id=client.instance_id,
            protocols=offering("range", metadata=metadata),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            knows_member_id_required=True,
        )
        if client.member_id or client.instance_id is not None:
            self.joins[token] = client
            model.join(token, client.member_id, client.instance_id, metadata, self.driver.at_ms)
        else:
            told = self.driver.answer(token, JoinResponse)
            model.tell(token, ErrorCode.MEMBER_ID_REQUIRED)
            client.member_id = told.member_id
            model.expected[told.member_id] = self.driver.at_ms + SESSION_MS
        self._compare()

    @rule(group_id=st.sampled_from(GROUPS), some=st.sets(st.integers(0, len(INSTANCES) - 1), min_size=1))
    def come_together(self, group_id: str, some: set[int]) -> None:
        """Joins some clients as well-behaved clients do: in two rounds where necessary, followed by a sync of each."""
        numbers = [each for each, client in enumerate(self.clients) if client.group_id == group_id]
        chosen = [numbers[each] for each in sorted(some)]
        for _ in range(2):
            for number in chosen:
                self.join(number, SUBSCRIPTIONS[0])
        for number in reversed(chosen):
            self.sync(number)

    @rule(number=clients)
    def forget_who_it_is(self, number: int) -> None:
        self.clients[number].member_id = ""

    @rule(number=clients)
    def sync(self, number: int) -> None:
        client = self._next(number)
        if not client.member_id:
            return
        self.offset += 1
        token = self.driver.send_sync(
            JoinResponse(generation=client.generation, member_id=client.member_id),
            client.group_id,
            instance_id=client.instance_id,
            assignments=tuple(AssignedBytes(each, f"{each}/{self.offset}".encode()) for each in client.members),
        )
        self.syncs[token] = (client.group_id, client.generation, client.member_id)
        model = self.model[client.group_id]
        model.sync(token, client.member_id, client.instance_id, client.generation, self.driver.at_ms)
        self._compare()

    @rule(some=st.sets(clients, min_size=1))
    def stay(self, some: set[int]) -> None:
        """Sends heartbeats of some clients, and lets time pass."""
        for number in sorted(some):
            self.heartbeat(number)
        self.pass_time(PAUSES_MS[-2])

    @rule(number=clients)
    def heartbeat(self, number: int) -> None:
        client = self._next(number)
        if not client.member_id:
            return
        joined = JoinResponse(generation=client.generation, member_id=client.member_id)
        self.driver.heartbeat(joined, client.group_id, instance_id=client.instance_id)
        model = self.model[client.group_id]
        model.heartbeat(
            self.driver.last_token, client.member_id, client.instance_id, client.generation, self.driver.at_ms
        )
        self._compare()

    @rule(number=clients)
    def leave(self, number: int) -> None:
        client = self._next(number)
        self.driver.leave((client.member_id, client.instance_id), group_id=client.group_id)
        model = self.model[client.group_id]
        model.leave(self.driver.last_token, client.member_id, client.instance_id, self.driver.at_ms)
        client.member_id = ""
        self._compare()

    @rule(number=clients, topic=topics, stale=st.integers(0, 1))
    def commit(self, number: int, topic: str, stale: int) -> None:
        client = self.clients[number]
        self._commit(client.group_id, topic, client.member_id, client.instance_id, client.generation - stale)

    @rule(group_id=st.sampled_from(GROUPS), topic=topics)
    def commit_from_outside(self, group_id: str, topic: str) -> None:
        self._commit(group_id, topic, "", None, -1)

    def _commit(self, group_id: str, topic: str, member_id: str, instance_id: str | None, generation: int) -> None:
        self.offset += 1
        committed = self.driver.commit(
            (topic, 0, self.offset),
            group_id=group_id,
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
        )
        model = self.model[group_id]
        expected = model.commit(member_id, instance_id, generation, self.driver.at_ms)
        model.tell(self.driver.last_token, expected)
        assert committed.error is expected
        if expected is ErrorCode.NONE:
            model.offsets[topic, 0] = self.offset

    # Administrators, time and crashes.

    @rule(group_id=st.sampled_from(GROUPS))
    def delete_group(self, group_id: str) -> None:
        model = self.model[group_id]
        expected = ErrorCode.NONE if model.state == "Empty" else ErrorCode.NON_EMPTY_GROUP
        assert self.driver.delete(group_id).error is expected
        if expected is ErrorCode.NONE:
            told = model.told
            self.model[group_id] = ModelGroup(told=told)
            self.stored[group_id] = ModelGroup()
            self._forget_assignments(group_id, 0)
            self._anchor(group_id)

    @rule(group_id=st.sampled_from(GROUPS), topic=topics)
    def delete_offsets(self, group_id: str, topic: str) -> None:
        model = self.model[group_id]
        is_read = any(
            topic in names for names in SUBSCRIPTIONS for each in model.members if each.metadata == subscription(*names)
        )
        errors = self.driver.delete_offsets((topic, 0), group_id=group_id).errors
        assert errors == ({(topic, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC} if is_read else {})
        if not is_read:
            model.offsets.pop((topic, 0), None)

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.driver.delete_topics(topic)
        for model in self.model.values():
            model.offsets.pop((topic, 0), None)

    @rule(by_ms=st.sampled_from(PAUSES_MS))
    def pass_time(self, by_ms: int) -> None:
        self.driver.pass_time(by_ms)
        for model in self.model.values():
            model.pass_time(self.driver.at_ms)
        self._compare()

    @rule()
    def restart(self) -> None:
        """Restarts the machine; pending requests are lost with their connections."""
        self.driver = self.driver.restarted()
        self.joins.clear()
        self.syncs.clear()
        for group_id in GROUPS:
            offsets = self.model[group_id].offsets
            self.model[group_id] = self.stored[group_id].after_restart(self.driver.at_ms)
            self.model[group_id].offsets = offsets
            self._forget_assignments(group_id, self.model[group_id].generation)

    def _forget_assignments(self, group_id: str, after: int) -> None:
        """Forgets the assignments of generations that were never logged, because their numbers may be used again."""
        self.assigned = {key: data for key, data in self.assigned.items() if key[0] != group_id or key[1] <= after}

    # Checks.

    def _compare(self) -> None:
        """Checks that machine and model have answered the same requests with the same errors. Then the clients process
        their answers."""
        told = [each for model in self.model.values() for each in model.told.items()]
        for token, (error, generation, _) in told:
            answer = self.driver.answers[token]
            assert answer.error is error
            if generation is not None:
                assert isinstance(answer, JoinResponse)
                assert answer.generation == generation
        waiting = [
            each for model in self.model.values() for member in model.members for each in (member.join, member.sync)
        ]
        assert set(self.driver.waiting) == {token for token in waiting if token is not None}
        self._note_joins()
        for token, (_, generation, leader) in told:
            if generation is not None and leader is not None and leader.member_id is not None:
                assert self.driver.answer(token, JoinResponse).leader == leader.member_id
        for model in self.model.values():
            model.told.clear()
        self._note_assignments()
        for group_id, model in self.model.items():
            if model.is_stored:
                model.is_stored = False
                self.stored[group_id] = model.after_restart(0)

    def _note_joins(self) -> None:
        for model in self.model.values():
            for token in [each for each in model.newcomers if each in self.driver.answers]:
                member = model.newcomers.pop(token)
                answer = self.driver.answer(token, JoinResponse)
                if answer.error is ErrorCode.NONE:
                    member.member_id = answer.member_id
        for token in [each for each in self.joins if each in self.driver.answers]:
            client, answer = self.joins.pop(token), self.driver.answer(token, JoinResponse)
            if answer.error is ErrorCode.NONE:
                client.member_id, client.generation = answer.member_id, answer.generation
                client.members = tuple(each.member_id for each in answer.members)

    def _note_assignments(self) -> None:
        """Checks that a member never gets two different assignments in one generation."""
        for token in [each for each in self.syncs if each in self.driver.answers]:
            key, answer = self.syncs.pop(token), self.driver.answer(token, SyncResponse)
            if answer.error is ErrorCode.NONE:
                assert self.assigned.setdefault(key, answer.assignment) == answer.assignment

    @invariant()
    def groups_are_as_the_model_says(self) -> None:
        for group_id, model in self.model.items():
            described = self.driver.describe(group_id)
            assert (described.state, described.generation) == (model.state, model.generation)
            for member, expected in zip(described.members, model.members, strict=True):
                assert member.instance_id == expected.instance_id
                assert expected.member_id in (None, member.member_id)
            assert self.driver.offsets(group_id) == model.offsets

    @invariant()
    def the_log_and_what_is_dumped_say_the_same(self) -> None:
        dumped = sorted(self.driver.machine.dump())
        last = {record.key: record for record in self.driver.log}
        assert dumped == sorted(record for record in last.values() if record.value is not None)
        assert _durable(self.driver.log) == _durable(dumped) == dumped


def _durable(log: list[LogRecord]) -> list[LogRecord]:
    return sorted(Driver(log).machine.dump())


@for_each("seed", range(10))
def test_long_random_walks_match_the_model_of_a_classic_group(seed: int) -> None:
    random = Random(seed)
    groups = ClassicGroups()
    groups.anchor()
    steps: list[tuple[int, Callable[[], None]]] = [
        (8, lambda: groups.join(random.randrange(CLIENTS), random.choice(SUBSCRIPTIONS))),
        (8, lambda: groups.sync(random.randrange(CLIENTS))),
        (6, lambda: groups.commit(random.randrange(CLIENTS), random.choice(TOPICS), random.randrange(2))),
        (3, lambda: groups.stay(set(random.sample(range(CLIENTS), random.randint(1, CLIENTS))))),
        (3, lambda: groups.pass_time(random.choice(PAUSES_MS))),
        (2, lambda: groups.come_together("g", set(random.sample(range(CLIENTS), random.randint(1, CLIENTS))))),
        (2, lambda: groups.heartbeat(random.randrange(CLIENTS))),
        (2, lambda: groups.forget_who_it_is(random.randrange(CLIENTS))),
        (2, lambda: groups.leave(random.randrange(CLIENTS))),
        (1, lambda: groups.commit_from_outside("g", random.choice(TOPICS))),
        (1, lambda: groups.delete_offsets("g", random.choice(TOPICS))),
        (1, lambda: groups.delete_topic(random.choice(TOPICS))),
        (1, lambda: groups.delete_group("g")),
        (1, groups.restart),
    ]
    weights = [weight for weight, _ in steps]
    for _ in range(400):
        ((_, step),) = random.choices(steps, weights)
        step()
        groups.groups_are_as_the_model_says()
    groups.the_log_and_what_is_dumped_say_the_same()


ClassicGroups.TestCase.settings = settings(max_examples=100, stateful_step_count=60)
TestClassicGroups = ClassicGroups.TestCase
