"""Tests iterators: a group shares a topic, and only the client with the coordinator's iterator can read and commit."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from interop.wire_alone.batches import stored
from interop.wire_alone.calls import (
    COMMIT_ITERATOR,
    GET_ITERATOR,
    GROUP_BEAT,
    GROUP_JOIN,
    GROUP_LEAVE,
    ITER_HAND,
    LIST_ITERATORS,
    READ_ITERATOR,
    ROLE,
    WATCH_MEMBER,
)
from interop.wire_alone.client import Broker, Connection, Fields

COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_MEMBER_ID = 14, 25
NOT_OWNER, INVALID_ITERATOR, FOREIGN_ITERATOR, ITERATOR_EXPIRED, FENCED_ITERATOR, ITERATOR_SETTLED = range(1030, 1036)
IN_FLIGHT_S = 20
NOTHING_DELIVERED = 1036
BEGINNING = -2
DELIVERED = -1


class MovedClock(Protocol):
    def advance(self, seconds: float) -> None: ...


class BrokerWithClock(Broker, Protocol):
    @property
    def clock(self) -> MovedClock: ...


class Client:
    """A member of a group that reads one topic with iterators, on a connection that only consumes."""

    def __init__(self, port: int, topic: str, name: str) -> None:
        self.connection = Connection(port)
        self.topic = topic
        self.names = {"group_id": f"readers of {topic}", "client_id": name}
        assert self.connection.ask(ROLE, role=2, producer_group=None)["error_code"] == 0

    def join(self) -> Fields:
        return self.connection.ask(GROUP_JOIN, **self.names)

    def heartbeat(self) -> Fields:
        return self.connection.ask(GROUP_BEAT, **self.names)

    def leave(self) -> Fields:
        return self.connection.ask(GROUP_LEAVE, **self.names)

    def get(self, partition: int = 0, max_messages: int = 100) -> Fields:
        return self.connection.ask(
            GET_ITERATOR,
            **self.names,
            topic=self.topic,
            partition=partition,
            max_messages=max_messages,
            in_flight_ms=IN_FLIGHT_S * 1000,
            start=BEGINNING,
        )

    def iterator(self, partition: int = 0, max_messages: int = 100) -> bytes:
        """Request the iterator of a partition that the client owns."""
        answer = self.get(partition, max_messages)
        assert answer["error_code"] == 0, answer
        iterator: bytes = answer["given"]["iterator"]
        return iterator

    def read(self, iterator: bytes) -> Fields:
        return self.connection.ask(READ_ITERATOR, iterator=iterator, max_bytes=1 << 20, max_wait_ms=0)

    def commit(self, iterator: bytes, count: int, **others: str) -> Fields:
        return self.connection.ask(COMMIT_ITERATOR, **{**self.names, **others}, iterator=iterator, count=count)

    def deliver(self, iterator: bytes, count: int) -> Fields:
        return self.connection.ask(ITER_HAND, **self.names, iterator=iterator, count=count)

    def own_iterators(self) -> list[Fields]:
        given: list[Fields] = self.connection.ask(LIST_ITERATORS, **self.names)["given"]
        return given

    def watch(self) -> int:
        """Opens a watch; the id of its further frame."""
        names = {"group_id": self.names["group_id"], "member_id": f"iterators/{self.names['client_id']}"}
        watch = self.connection.send(WATCH_MEMBER, names)
        assert self.connection.receive(WATCH_MEMBER, watch)["error_code"] == 0
        return watch

    def owned(self) -> set[int]:
        return {number for topic in self.heartbeat()["assignment"] for number in topic["partitions"]}


class Group:
    """A topic of two partitions with ten messages in each, and the clients that share it."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.port = port
        self._stack = stack
        with Connection(port) as producer:
            self.topic = producer.create_topic(2)
            for partition in (0, 1):
                producer.put(self.topic, *values(0, 10), partition=partition)

    def joined(self, name: str) -> Client:
        client = Client(self.port, self.topic, name)
        self._stack.enter_context(client.connection)
        assert client.join()["error_code"] == 0
        return client


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def group(millstream_bootstrap: str, stack: ExitStack) -> Group:
    return Group(int(millstream_bootstrap.rpartition(":")[2]), stack)


def values(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def read_values(answer: Fields) -> list[bytes]:
    """Return the values in the iterator's range; the answer has whole batches with further messages around it."""
    assert answer["error_code"] == 0, answer
    return [each.value for each in stored(answer["records"]) if answer["offset"] <= each.offset < answer["end_offset"]]


def test_a_partition_is_read_with_committed_iterators(group: Group) -> None:
    client = group.joined("a")
    given = client.get(max_messages=4)["given"]
    assert (given["port"], given["offset"], given["max_messages"]) == (group.port, BEGINNING, 4)
    seen: list[bytes] = []
    while len(seen) < 10:
        answer = client.read(given["iterator"])
        seen += read_values(answer)
        committed = client.commit(answer["iterator"], answer["end_offset"] - answer["offset"])
        assert (committed["error_code"], committed["position"]) == (0, len(seen))
        given = committed["given"]
    assert seen == values(0, 10)
    assert read_values(client.read(given["iterator"])) == []


def test_a_read_returns_the_next_iterator(group: Group) -> None:
    client = group.joined("a")
    answer = client.read(client.iterator(max_messages=4))
    assert read_values(client.read(answer["next"])) == values(4, 8)


def test_a_group_continues_after_a_partial_commit(group: Group) -> None:
    client = group.joined("a")
    answer = client.read(client.iterator())
    assert client.commit(answer["iterator"], 3)["position"] == 3
    assert client.leave()["error_code"] == 0
    other = group.joined("b")
    assert read_values(other.read(other.iterator())) == values(3, 10)


def test_list_iterators_returns_the_iterators_in_flight(group: Group) -> None:
    client = group.joined("a")
    iterators = {0: client.iterator(0), 1: client.iterator(1)}
    assert {each["partition"]: each["iterator"] for each in client.own_iterators()} == iterators
    everybodys = client.connection.ask(LIST_ITERATORS, **{**client.names, "client_id": None})["given"]
    assert {(each["client_id"], each["iterator"]) for each in everybodys} == {("a", None)}


def test_delivered_messages_can_be_committed_over_another_connection(group: Group, stack: ExitStack) -> None:
    client = group.joined("a")
    answer = client.read(client.iterator())
    assert client.commit(answer["iterator"], DELIVERED)["error_code"] == NOTHING_DELIVERED
    assert client.deliver(answer["iterator"], 4)["left_ms"] > 0
    other = Client(group.port, group.topic, "a")
    stack.enter_context(other.connection)
    (delivered,) = other.own_iterators()
    assert (delivered["offset"], delivered["delivered"]) == (0, 4)
    assert read_values(other.read(delivered["iterator"]))[: delivered["delivered"]] == values(0, 4)
    committed = other.commit(delivered["iterator"], DELIVERED)
    assert (committed["position"], committed["given"]["delivered"]) == (4, 0)
    assert other.commit(delivered["iterator"], DELIVERED)["position"] == 4, (
        "a commit may be repeated if its answer was lost"
    )


def test_a_second_client_takes_over_after_the_first_has_committed(group: Group) -> None:
    first = group.joined("a")
    iterators = {number: first.iterator(number, max_messages=4) for number in (0, 1)}
    second = group.joined("b")
    # The first request starts the rebalance; iterators in flight stay with their owner until it commits.
    assert {second.get(number)["error_code"] for number in (0, 1)} == {NOT_OWNER}
    for number, iterator in iterators.items():
        answer = first.read(iterator)
        assert read_values(answer) == values(0, 4)
        assert answer["next"] is None
        assert first.commit(answer["iterator"], 4)["position"] == 4, number
    (kept,) = first.owned()
    (moved,) = second.owned()
    assert {kept, moved} == {0, 1}
    assert first.get(moved)["error_code"] == NOT_OWNER
    assert read_values(second.read(second.iterator(moved))) == values(4, 10)
    assert first.read(iterators[moved])["error_code"] == FENCED_ITERATOR


def test_a_committed_iterator_is_not_committed_with_another_count(group: Group) -> None:
    client = group.joined("a")
    first = client.read(client.iterator(max_messages=4))["iterator"]
    next_one = client.commit(first, 4)["given"]["iterator"]
    again = client.commit(first, 4)
    assert again["given"]["iterator"] == next_one, "a commit may be repeated if its answer was lost"
    assert client.commit(first, 2)["error_code"] == ITERATOR_SETTLED


@pytest.mark.parametrize("place", [0, 20, -1])
def test_a_forged_iterator_is_refused(place: int, group: Group) -> None:
    client = group.joined("a")
    forged = bytearray(client.iterator())
    forged[place] ^= 1
    assert client.read(bytes(forged))["error_code"] == INVALID_ITERATOR
    assert client.commit(bytes(forged), 0)["error_code"] == INVALID_ITERATOR
    assert client.deliver(bytes(forged), 0)["error_code"] == INVALID_ITERATOR


@pytest.mark.parametrize("others", [{"client_id": "b"}, {"group_id": "other"}])
def test_an_iterator_of_another_client_cannot_be_committed(others: dict[str, str], group: Group) -> None:
    client = group.joined("a")
    assert client.commit(client.iterator(), 0, **others)["error_code"] == FOREIGN_ITERATOR


@pytest.mark.parametrize("ask", [Client.heartbeat, Client.get, Client.leave])
def test_a_client_outside_of_the_group_is_refused(ask: Any, group: Group) -> None:
    client = group.joined("a")
    assert client.leave()["error_code"] == 0
    assert ask(client)["error_code"] == UNKNOWN_MEMBER_ID


def test_an_expired_iterator_is_issued_again(millstream_broker: BrokerWithClock, stack: ExitStack) -> None:
    client = Group(millstream_broker.port, stack).joined("a")
    iterator = client.iterator(max_messages=4)
    answer = client.read(iterator)
    millstream_broker.clock.advance(IN_FLIGHT_S + 1)
    assert client.read(iterator)["error_code"] == ITERATOR_EXPIRED
    again = client.iterator(max_messages=4)
    assert read_values(client.read(again)) == values(0, 4)
    assert client.commit(answer["iterator"], 4)["error_code"] == ITERATOR_SETTLED


def test_a_killed_broker_restores_the_owners_of_iterators(millstream_process: Broker, stack: ExitStack) -> None:
    group = Group(millstream_process.port, stack)
    first = group.joined("a")
    while first.get(max_messages=4)["error_code"] == NOT_OWNER:
        pass  # The coordinator waits a moment for further members before it assigns partitions.
    iterator = first.iterator()
    millstream_process.kill()
    millstream_process.start()
    client = Client(group.port, group.topic, "a")
    stack.enter_context(client.connection)
    answer = client.read(iterator)
    assert read_values(answer) == values(0, 4)
    while client.heartbeat()["error_code"] == COORDINATOR_LOAD_IN_PROGRESS:
        pass
    assert client.commit(answer["iterator"], 4)["position"] == 4


def test_a_member_watch_is_answered_when_another_client_leaves_its_partitions(group: Group) -> None:
    first, second = group.joined("a"), group.joined("b")
    first.get()
    second.get()
    while first.owned() | second.owned() != {0, 1} or not (first.owned() and second.owned()):
        pass
    watch = second.watch()
    assert len(second.owned()) == 1
    assert not second.connection.has_kept(watch)
    first.leave()
    assert second.connection.receive(WATCH_MEMBER, watch)["error_code"] == 0
    assert second.owned() == {0, 1}
