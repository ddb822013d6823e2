"""Models iterator clients that send commands to a driven machine; its notices go to an iterator server."""

from typing import Any

from builders.groups.machine import START_MS, WALL_MS, Driver
from builders.groups.topics import Topics
from millstream.coordination.effects import Now
from millstream.groups.commands import (
    CommitIterator,
    DeliverIterator,
    GetIterator,
    IteratorHeartbeat,
    IteratorJoin,
    IteratorLeave,
    ListIterators,
)
from millstream.groups.effects import GroupEffects
from millstream.groups.iterators.iterator import BEGINNING, Iterator, IteratorNotice
from millstream.groups.iterators.served_iterators import ServedIterators
from millstream.groups.responses import IteratorClientResponse, IteratorList, IteratorResponse
from millstream.model.errors import ErrorCode, MillstreamError

IN_FLIGHT_MS = 30_000
IN_FLIGHT_MAX_MS = 600_000


class JumpingClock:
    """A clock with the driver's monotonic time, and a wall clock that is ahead by an offset set by the test."""

    def __init__(self) -> None:
        self.at_ms = START_MS
        self.wall_ahead_ms = WALL_MS

    def wall_ms(self) -> int:
        return self.at_ms + self.wall_ahead_ms

    def monotonic_s(self) -> float:
        return self.at_ms / 1000


class IteratorDriver(Driver):
    """A driven machine, and an iterator server that receives its notices."""

    def __init__(self, *args: Any, clock: JumpingClock | None = None, **settings: Any) -> None:
        self.clock = clock or JumpingClock()
        self.server = ServedIterators(self.clock, IN_FLIGHT_MAX_MS)
        super().__init__(*args, **settings)

    @property
    def now(self) -> Now:
        self.clock.at_ms = self.at_ms
        return Now(self.at_ms, self.clock.wall_ms())

    def _take(self, effects: GroupEffects) -> None:
        for told in effects.notices:
            if isinstance(told, IteratorNotice):
                self.server.told(told)
        super()._take(effects)

    def restarted(self) -> "IteratorDriver":
        """Return a driver with a new machine on the same log and a server without state."""
        return type(self)(self.log, self.at_ms, self.topics, self._seed + 1, clock=self.clock, **self._settings)

    def client(self, name: str = "a", group_id: str = "g") -> "IteratorClient":
        return IteratorClient(self, name, group_id)

    def joined(self, *names: str) -> list["IteratorClient"]:
        clients = [self.client(name) for name in names]
        for client in clients:
            assert client.join().error is ErrorCode.NONE
        return clients

    def read(self, iterator: Iterator) -> ErrorCode:
        """Return the error with which the partition's server answers a read of the iterator."""
        self.clock.at_ms = self.at_ms
        try:
            self.server.check(iterator)
        except MillstreamError as error:
            return error.code
        return ErrorCode.NONE


class IteratorClient:
    def __init__(self, driver: IteratorDriver, name: str, group_id: str) -> None:
        self.driver = driver
        self.name = name
        self.group_id = group_id

    def join(self) -> IteratorClientResponse:
        return self.driver.ask(IteratorJoin(self.group_id, self.name, "program", "/127.0.0.1"), IteratorClientResponse)

    def heartbeat(self) -> IteratorClientResponse:
        return self.driver.ask(IteratorHeartbeat(self.group_id, self.name), IteratorClientResponse)

    def leave(self) -> IteratorClientResponse:
        return self.driver.ask(IteratorLeave(self.group_id, self.name), IteratorClientResponse)

    def ask(self, partition: int = 0, topic: str = "orders", **other: Any) -> IteratorResponse:
        """Send GetIterator and return the response."""
        fields: dict[str, Any] = {"messages_max": 100, "in_flight_ms": -1, "start": BEGINNING}
        return self.driver.ask(
            GetIterator(self.group_id, self.name, topic, partition, **(fields | other)), IteratorResponse
        )

    def get(self, partition: int = 0, topic: str = "orders", **other: Any) -> Iterator:
        """Send GetIterator as the owner and return the iterator."""
        answer = self.ask(partition, topic, **other)
        assert answer.error is ErrorCode.NONE, answer
        assert answer.given is not None
        return answer.given.iterator

    def commit(self, iterator: Iterator, count: int) -> IteratorResponse:
        return self.driver.ask(CommitIterator(self.group_id, self.name, iterator, count), IteratorResponse)

    def deliver(self, iterator: Iterator, count: int) -> IteratorResponse:
        return self.driver.ask(DeliverIterator(self.group_id, self.name, iterator, count), IteratorResponse)

    def delivered(self) -> dict[int, tuple[int, int]]:
        """Return the first offset and the number of delivered offsets, by partition."""
        found = self.driver.ask(ListIterators(self.group_id, self.name), IteratorList)
        return {
            each.iterator.partition: (each.iterator.offset, each.delivered) for each in found.given if each.delivered
        }

    def settle(self, iterator: Iterator, count: int) -> Iterator:
        """Commit an iterator and return the following one."""
        answer = self.commit(iterator, count)
        assert answer.error is ErrorCode.NONE, answer
        assert answer.given is not None
        return answer.given.iterator

    def iterators(self) -> list[tuple[int, int]]:
        """Return partitions and offsets of its iterators in flight."""
        found = self.driver.ask(ListIterators(self.group_id, self.name), IteratorList)
        return sorted((each.iterator.partition, each.iterator.offset) for each in found.given)

    def owned(self) -> set[tuple[str, int]]:
        return {(each.topic, number) for each in self.heartbeat().assignment for number in each.partitions}


def driver(**settings: Any) -> IteratorDriver:
    return IteratorDriver(topics=Topics(orders=4, bills=2), **settings)
