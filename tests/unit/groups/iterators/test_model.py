"""Tests iterators against the state diagram of docs/iterators.md, for random sequences of events.

The model implements the diagram. Of the machine it knows only the answers to clients and the members of the group.
"""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from builders.groups.consumers import describe
from builders.groups.iterator_clients import IN_FLIGHT_MAX_MS, IteratorClient, IteratorDriver
from builders.groups.topics import Topics
from millstream.groups.commands import ListIterators
from millstream.groups.iterators.issue import DELIVERED
from millstream.groups.iterators.iterator import BEGINNING, CLOCK_TOLERANCE_MS, Iterator, member_id
from millstream.groups.responses import IteratorList, IteratorResponse
from millstream.model.errors import ErrorCode

NAMES = ("a", "b", "c")
PARTITIONS = 3
MESSAGES = 10
HOUR_MS = 3_600_000
_any = st.integers(0, 1_000)


class Flight(NamedTuple):
    """The state of a partition for which the group has an issued iterator. A partition without one is free."""

    iterator: Iterator
    in_flight_ms: int
    until_ms: int
    after: int = 0
    is_over: bool = False
    is_abandoned: bool = False
    """True if its client has left the group since, or its session timeout has passed."""
    was_overdue: bool = False
    delivered: int = 0


class Held(NamedTuple):
    """An iterator that a client has."""

    iterator: Iterator
    until_ms: int
    starts: int
    """Number of starts of the broker before the client got the iterator."""


class Iterators(RuleBasedStateMachine):
    """Applies each step to the machine and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = IteratorDriver(topics=Topics(orders=PARTITIONS))
        self.clients = {name: IteratorClient(self.driver, name, "g") for name in NAMES}
        self.flights: dict[int, Flight] = {}
        self.positions: dict[int, int] = {}
        self.held: list[Held] = []
        self.starts = 0
        self.generation = 0
        self.has_jumped = False

    # State of the group, which the model does not check.

    @property
    def members(self) -> set[str]:
        return {each.member_id for each in describe(self.driver).members}

    def owner(self, partition: int) -> str | None:
        """Returns the client that has a partition or still has to revoke it."""
        for member in describe(self.driver).members:
            if any(partition in each.partitions for each in member.assignment):
                return member.member_id.removeprefix("iterators/")
        return None

    def is_in(self, name: str) -> bool:
        return member_id(name) in self.members

    # Steps of clients.

    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        answer = self.clients[name].join()
        assert answer.error is ErrorCode.NONE
        self.see_generation(answer.generation)

    @rule(name=st.sampled_from(NAMES))
    def heartbeat(self, name: str) -> None:
        was_in = self.is_in(name)
        answer = self.clients[name].heartbeat()
        assert answer.error is (ErrorCode.NONE if was_in else ErrorCode.UNKNOWN_MEMBER_ID)
        if was_in:
            self.see_generation(answer.generation)

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        was_in = self.is_in(name)
        assert self.clients[name].leave().error is (ErrorCode.NONE if was_in else ErrorCode.UNKNOWN_MEMBER_ID)
        self.time_passed()

    @rule(name=st.sampled_from(NAMES))
    def work(self, name: str) -> None:
        """Acts like a client: requests all iterators, and reads and commits those that it gets."""
        self.join(name)
        for partition in range(PARTITIONS):
            self.get(name, partition, -1)
        for flight in list(self.flights.values()):
            if flight.iterator.client_id == name:
                self.check_commit(replace(flight.iterator, offset=max(flight.iterator.offset, 0)), 1)

    @rule(
        name=st.sampled_from(NAMES),
        partition=st.integers(0, PARTITIONS - 1),
        in_flight_ms=st.sampled_from([-1, 5_000, IN_FLIGHT_MAX_MS]),
    )
    def get(self, name: str, partition: int, in_flight_ms: int) -> None:
        was_in, flight = self.is_in(name), self.flights.get(partition)
        is_taken = flight is not None and self.in_flight(flight) and self.owner(partition) != name
        answer = self.clients[name].ask(partition, messages_max=MESSAGES, in_flight_ms=in_flight_ms)
        if not was_in:
            assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
            return
        if answer.given is None:
            assert answer.error is ErrorCode.NOT_OWNER
            assert ("orders", partition) not in self.clients[name].owned()
            return
        iterator = answer.given.iterator
        assert not is_taken, "what is in flight is nobody else's"
        assert self.owner(partition) == name
        self.see_generation(iterator.generation)
        is_its_own = flight is not None and flight.iterator.client_id == name and self.in_flight(flight)
        if flight is not None and is_its_own and flight.iterator.generation == self.generation:
            assert iterator == flight.iterator, "one per client, group, topic and partition"
            assert answer.given.left_ms == flight.until_ms - self.driver.at_ms
            assert answer.given.delivered == flight.delivered
        else:
            self.issued(iterator, 30_000 if in_flight_ms == -1 else in_flight_ms)

    @precondition(lambda self: self.held)
    @rule(index=_any, count=st.integers(DELIVERED, MESSAGES), offset=st.integers(0, 50), is_lost=st.booleans())
    def commit(self, index: int, count: int, offset: int, is_lost: bool) -> None:
        """Commits an iterator as the server returned it: with an offset, perhaps a later one."""
        iterator = self.held[index % len(self.held)].iterator
        iterator = replace(iterator, offset=max(iterator.offset, 0) + offset)
        self.check_commit(iterator, count)
        if is_lost:
            self.check_commit(iterator, count)

    def check_commit(self, iterator: Iterator, count: int) -> None:
        name, partition, position = iterator.client_id, iterator.partition, iterator.offset + count
        flight, owner, was_in = self.flight(partition), self.owner(partition), self.is_in(name)
        if count == DELIVERED:
            position = self.delivered_to(flight)
        answer = self.clients[name].commit(iterator, count)
        if not was_in:
            assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
        elif flight is not None and self.is_repeated(flight, iterator, position, count):
            assert answer.error is ErrorCode.NONE
            assert answer.position == position
            assert (None if answer.given is None else answer.given.iterator) == (
                None if flight.is_over else flight.iterator
            )
        elif owner != name:
            assert answer.error is ErrorCode.NOT_OWNER
        elif flight is None or flight.is_over or not self.is_same(flight.iterator, iterator):
            assert answer.error is ErrorCode.ITERATOR_SETTLED
        elif count == DELIVERED and not flight.delivered:
            assert answer.error is ErrorCode.NOTHING_DELIVERED
        else:
            self.settled(flight, iterator, position, answer)

    def flight(self, partition: int) -> Flight | None:
        """Returns the issued iterator, unless its client has left since."""
        flight = self.flights.get(partition)
        return None if flight is None or flight.is_abandoned else flight

    def delivered_to(self, flight: Flight | None) -> int:
        """Returns the end of the deliveries; without deliveries, the position of the last commit."""
        if flight is None:
            return -1
        committed = self.positions.get(flight.iterator.partition, -1)
        return flight.iterator.offset + flight.delivered if flight.delivered else committed

    @precondition(lambda self: self.held)
    @rule(index=_any, count=st.integers(1, MESSAGES), offset=st.sampled_from([0, 0, 0, 7]), also_commit=st.booleans())
    def deliver(self, index: int, count: int, offset: int, also_commit: bool) -> None:
        """Delivers an iterator as the server returned it: with an offset, perhaps a later one."""
        iterator = self.held[index % len(self.held)].iterator
        iterator = replace(iterator, offset=max(iterator.offset, 0) + offset)
        self.check_hand(iterator, count)
        if also_commit:
            self.check_commit(iterator, DELIVERED)

    def check_hand(self, iterator: Iterator, count: int) -> None:
        name, partition = iterator.client_id, iterator.partition
        flight, owner, was_in = self.flight(partition), self.owner(partition), self.is_in(name)
        answer = self.clients[name].deliver(iterator, count)
        if not was_in:
            assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
        elif owner != name:
            assert answer.error is ErrorCode.NOT_OWNER
        elif flight is None or flight.is_over or not self.is_same(flight.iterator, iterator):
            assert answer.error is ErrorCode.ITERATOR_SETTLED
        elif not self.is_in_time(flight):
            assert answer.error is ErrorCode.ITERATOR_EXPIRED
        else:
            self.delivered(flight, iterator.offset, count, answer)

    def delivered(self, flight: Flight, offset: int, count: int, answer: IteratorResponse) -> None:
        """Records a delivery in place of the previous one. Its time in flight restarts unless the partition must
        move."""
        iterator, until_ms = replace(flight.iterator, offset=offset), flight.until_ms
        if ("orders", iterator.partition) in self.clients[iterator.client_id].owned():
            until_ms = self.driver.at_ms + flight.in_flight_ms
            iterator = replace(iterator, expires_ms=self.driver.now.wall_ms + flight.in_flight_ms)
        assert answer.given == (iterator, until_ms - self.driver.at_ms, count)
        self.flights[iterator.partition] = flight._replace(iterator=iterator, until_ms=until_ms, delivered=count)
        self.held = [
            each._replace(until_ms=until_ms) if self.is_same(each.iterator, iterator) else each for each in self.held
        ]
        self.held.append(Held(iterator, until_ms, self.starts))

    def is_same(self, one: Iterator, other: Iterator) -> bool:
        """True if both are of the same issue, whatever their offsets. A partition may have a new `life` after a long
        time without clients."""
        return (one.life, one.issue) == (other.life, other.issue)

    def is_repeated(self, flight: Flight, iterator: Iterator, position: int, count: int) -> bool:
        done = flight.iterator.issue if flight.is_over else flight.after
        return (
            flight.iterator.client_id == iterator.client_id
            and (flight.iterator.life, done) == (iterator.life, iterator.issue)
            and not (count == DELIVERED and flight.delivered)
            and position == self.positions.get(iterator.partition)
            and (flight.is_over or flight.iterator.offset == position)
        )

    def settled(self, flight: Flight, iterator: Iterator, position: int, answer: IteratorResponse) -> None:
        partition = iterator.partition
        assert (answer.error, answer.position) == (ErrorCode.NONE, position)
        self.positions[partition] = position
        if answer.given is None:
            self.flights[partition] = flight._replace(is_over=True, delivered=0)
            assert ("orders", partition) not in self.clients[iterator.client_id].owned()
        else:
            self.issued(answer.given.iterator, flight.in_flight_ms, after=iterator.issue)

    def issued(self, iterator: Iterator, in_flight_ms: int, after: int = 0) -> None:
        before = self.flights.get(iterator.partition)
        assert iterator.offset == self.positions.get(iterator.partition, BEGINNING)
        assert iterator.expires_ms == self.driver.now.wall_ms + in_flight_ms
        if before is not None and before.iterator.life == iterator.life:
            assert iterator.issue > before.iterator.issue
        until_ms = self.driver.at_ms + in_flight_ms
        self.flights[iterator.partition] = Flight(iterator, in_flight_ms, until_ms, after)
        self.held.append(Held(iterator, until_ms, self.starts))
        self.see_generation(iterator.generation)

    @precondition(lambda self: self.held)
    @rule(index=_any)
    def read(self, index: int) -> None:
        """Reads from the partition's server, which knows only the notices since its start and the iterators it has
        seen."""
        iterator, until_ms, starts = self.held[index % len(self.held)]
        said, now_ms = self.driver.read(iterator), self.driver.at_ms
        newer = [
            each for each in self.held if each.iterator.life == iterator.life
            and each.iterator.partition == iterator.partition and each.iterator.generation > iterator.generation
        ]  # fmt: skip
        flight = self.flights.get(iterator.partition)
        if said is ErrorCode.FENCED_ITERATOR:
            assert newer
        elif said is ErrorCode.NONE:
            assert all(each.starts < self.starts for each in newer), "it was told of newer ones"
            assert starts < self.starts or now_ms < until_ms + CLOCK_TOLERANCE_MS or self.has_jumped
        is_current = flight is not None and flight.iterator == iterator and self.in_flight(flight)
        if is_current and starts == self.starts and now_ms < until_ms:
            assert said is ErrorCode.NONE, "in flight, wherever the wall clock has gone"
            is_of_this_generation = iterator.generation == describe(self.driver).assignment_epoch
            assert self.driver.server.has_next(iterator) == is_of_this_generation

    # Time, clocks and restarts of the broker.

    @rule(seconds=st.sampled_from([1, 4, 10, 31, 46, 700]))
    def pass_time(self, seconds: int) -> None:
        self.driver.pass_time(seconds * 1000)
        self.time_passed()
        if describe(self.driver).error is ErrorCode.GROUP_ID_NOT_FOUND:
            # The group was empty for long and had no offsets, so it was removed: the next one of this name is new.
            assert not self.positions
            self.generation = 0
            self.flights.clear()

    @rule(by_ms=st.sampled_from([-HOUR_MS, -20_000, 20_000, HOUR_MS]))
    def wall_clock_jumps(self, by_ms: int) -> None:
        self.driver.clock.wall_ahead_ms += by_ms
        self.has_jumped = True

    @rule()
    def restart(self) -> None:
        self.check_log()
        self.driver = self.driver.restarted()
        self.starts += 1
        for client in self.clients.values():
            client.driver = self.driver
        now = self.driver.now
        for partition, flight in self.flights.items():
            left_ms = min(max(0, flight.iterator.expires_ms - now.wall_ms), flight.in_flight_ms)
            self.flights[partition] = flight._replace(until_ms=now.monotonic_ms + left_ms)
        self.time_passed()

    # Invariants.

    def is_in_time(self, flight: Flight) -> bool:
        return not flight.is_over and not flight.is_abandoned and self.driver.at_ms < flight.until_ms

    def in_flight(self, flight: Flight) -> bool:
        return self.is_in_time(flight) and self.owner(flight.iterator.partition) == flight.iterator.client_id

    def time_passed(self) -> None:
        """Marks iterators of clients that have left the group, and iterators that have expired. An expired iterator
        stays marked even if, after a restart, the wall clock leaves it time again: its partition may have moved
        meanwhile."""
        members, now_ms = self.members, self.driver.at_ms
        for partition, flight in self.flights.items():
            is_gone = not flight.is_over and member_id(flight.iterator.client_id) not in members
            self.flights[partition] = flight._replace(
                is_abandoned=flight.is_abandoned or is_gone,
                was_overdue=flight.was_overdue or now_ms >= flight.until_ms,
            )

    def see_generation(self, generation: int) -> None:
        assert generation >= self.generation, "generations do not go back"
        self.generation = generation

    def check_log(self) -> None:
        assert sorted(self.driver.restarted().machine.dump()) == sorted(self.driver.machine.dump())

    @invariant()
    def what_is_in_flight_is_what_was_issued(self) -> None:
        listed = self.driver.ask(ListIterators("g", None), IteratorList)
        if listed.error is ErrorCode.GROUP_ID_NOT_FOUND:
            assert not any(self.in_flight(flight) for flight in self.flights.values())
            return
        told = {each.iterator.partition: tuple(each) for each in listed.given}
        assert len(told) == len(listed.given), "one for each partition"
        now_ms = self.driver.at_ms
        assert told == {
            partition: (flight.iterator, flight.until_ms - now_ms, flight.delivered)
            for partition, flight in self.flights.items()
            if self.in_flight(flight)
        }

    @invariant()
    def deliveries_are_listed_while_a_commit_of_them_is_accepted(self) -> None:
        told = {partition: each for client in self.clients.values() for partition, each in client.delivered().items()}
        assert told == {
            partition: (flight.iterator.offset, flight.delivered)
            for partition, flight in self.flights.items()
            if flight.delivered and not flight.is_abandoned and self.owner(partition) == flight.iterator.client_id
        }

    @invariant()
    def what_is_in_flight_stays_where_it_is(self) -> None:
        for partition, flight in self.flights.items():
            if self.is_in_time(flight) and not flight.was_overdue:
                assert self.owner(partition) == flight.iterator.client_id

    @invariant()
    def positions_are_what_was_committed(self) -> None:
        told = {number: offset for (_, number), offset in self.driver.offsets().items()}
        assert told == self.positions

    def teardown(self) -> None:
        self.check_log()
        for _ in range(4):
            self.driver.pass_time(IN_FLIGHT_MAX_MS)
        (only,) = self.driver.joined("last")
        iterators = [only.get(number) for number in range(PARTITIONS)]
        assert [each.offset for each in iterators] == [
            self.positions.get(number, BEGINNING) for number in range(PARTITIONS)
        ]


def test_iterators_follow_the_state_diagram_in_random_sequences_of_events() -> None:
    run_state_machine_as_test(Iterators, settings=settings(max_examples=100, stateful_step_count=40, deadline=None))
