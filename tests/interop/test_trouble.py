"""Tests clients through cut connections and restarts of the broker."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from interop.abilities import each_that_can, own_protocol
from interop.clients.ability import Ability
from interop.clients.client import AdminClient, Client, Message, Stream
from interop.conftest import Frail
from interop.waiting import eventually
from interop.wire import ask

PART = 200


def value(number: int) -> bytes:
    return b"%d " % number * 20


def numbered(start: int) -> list[Message]:
    return [Message(value(number)) for number in range(start, start + PART)]


def log_end(frail: Frail, topic: str) -> int:
    """Return the log end offset, from the broker directly and not through the proxy."""
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    request = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [row]}]}
    answer = ask("127.0.0.1", frail.broker.port, "ListOffsets", 4, request)
    offset: int = answer["topics"][0]["partitions"][0]["offset"]
    return offset


def await_end(frail: Frail, topic: str, at_least: int) -> None:
    eventually(lambda: log_end(frail, topic), lambda end: end >= at_least, f"{at_least} messages are stored")


@contextmanager
def open_stream(client: Client, topic: str) -> Iterator[Stream]:
    """Open a producer that is closed in any case; closing asserts that all messages were acknowledged."""
    stream = client.stream(topic)
    try:
        yield stream
    finally:
        stream.close()


def stored_values(client: Client, topic: str, count: int) -> list[bytes | None]:
    return [stored.message.value for stored in client.read(topic, 0, 0, count)]


def make_topic(clients: Mapping[str, Client], frail: Frail, topic: str) -> Client:
    maker = clients["confluent-kafka"].at(frail.bootstrap)
    assert isinstance(maker, AdminClient)
    maker.create_topic(topic, 1)
    return maker


@each_that_can(Ability.CUT)
def test_an_idempotent_producer_stores_once_when_the_connection_is_cut(
    clients: Mapping[str, Client], frail: Frail, new_name: Callable[[], str], client: Client
) -> None:
    topic = new_name()
    reader = make_topic(clients, frail, topic)
    with open_stream(client.at(frail.bootstrap), topic) as stream:
        stream.send(numbered(0))
        await_end(frail, topic, 1)
        # These messages are stored but not acknowledged: the producer retries them, and the broker must recognise them.
        before = frail.wire.swallowed
        frail.wire.swallow_answers()
        try:
            stream.send(numbered(PART))
            eventually(lambda: frail.wire.swallowed, lambda count: count > before, "an acknowledgement is lost")
        finally:
            frail.wire.cut()
        stream.send(numbered(2 * PART))
    assert log_end(frail, topic) == 3 * PART
    assert stored_values(reader, topic, 3 * PART) == [value(number) for number in range(3 * PART)]


@each_that_can(Ability.RESTART)
def test_producers_and_groups_continue_after_a_broker_restart(
    clients: Mapping[str, Client], frail: Frail, new_name: Callable[[], str], client: Client
) -> None:
    topic, group = new_name(), new_name()
    reader = make_topic(clients, frail, topic)
    tried = client.at(frail.bootstrap)
    member = tried.join(group, topic, own_protocol(client.name))
    try:
        with open_stream(tried, topic) as stream:
            stream.send(numbered(0))
            eventually(lambda: len(member.received()), lambda count: count > 0, "the member receives")
            member.commit()
            frail.broker.restart()
            stream.send(numbered(PART))
        eventually(
            lambda: {one.offset for one in member.received()},
            lambda seen: len(seen) == 2 * PART,
            "everything is received",
        )
    finally:
        member.leave()
    assert stored_values(reader, topic, 2 * PART) == [value(number) for number in range(2 * PART)]
