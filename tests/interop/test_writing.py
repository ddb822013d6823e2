"""Tests writes of each client: idempotent, to new topics, to several partitions, and alternating with others."""

from collections.abc import Callable, Mapping

import pytest

from interop.clients.ability import Ability
from interop.clients.client import Client, Message
from interop.clients.every import NAMES, able

TELLING = tuple(name for name in NAMES if name not in ("kcat", "java-tools"))


def numbered(count: int, mark: str) -> list[Message]:
    return [Message(f"{mark} {number}".encode(), b"k") for number in range(count)]


@pytest.mark.parametrize("writer", NAMES)
def test_an_idempotent_producer_stores_each_message_once_in_order(
    clients: Mapping[str, Client], new_topic: Callable[..., str], writer: str
) -> None:
    topic = new_topic()
    messages = numbered(3_000, writer)
    clients[writer].write(topic, 0, clients[writer].expressible(messages), idempotent=True)
    found = clients["confluent-kafka"].read(topic, 0, 0, len(messages))
    assert [stored.message.value for stored in found] == [message.value for message in messages]
    assert clients["confluent-kafka"].ends(topic, 0) == (0, len(messages))


@pytest.mark.parametrize("writer", TELLING)
def test_a_write_returns_the_offsets_of_its_messages(
    clients: Mapping[str, Client], new_topic: Callable[..., str], writer: str
) -> None:
    topic = new_topic()
    messages = numbered(20, writer)
    offsets = [clients[writer].write(topic, 0, messages) for _ in range(2)]
    assert offsets == [list(range(20)), list(range(20, 40))]


@pytest.mark.parametrize("writer", NAMES)
def test_writing_to_a_missing_topic_creates_it(
    clients: Mapping[str, Client], new_name: Callable[[], str], writer: str
) -> None:
    topic = new_name()
    messages = numbered(3, writer)
    clients[writer].write(topic, 0, clients[writer].expressible(messages))
    found = clients["java"].read(topic, 0, 0, 3)
    assert [stored.message.value for stored in found] == [message.value for message in messages]
    assert clients["confluent-kafka"].topics()[topic] == 1


@pytest.mark.parametrize("name", able(Ability.PLACE))
def test_writes_go_only_to_the_chosen_partition(
    clients: Mapping[str, Client], new_topic: Callable[..., str], name: str
) -> None:
    topic = new_topic(4)
    own = clients[name]
    for partition in range(4):
        own.write(topic, partition, own.expressible(numbered(5 + partition, f"in {partition}")))
    for partition in range(4):
        found = own.read(topic, partition, 0, 5 + partition)
        assert [stored.message.value for stored in found] == [
            message.value for message in numbered(5 + partition, f"in {partition}")
        ]
        assert own.ends(topic, partition) == (0, 5 + partition)


def test_clients_that_write_alternately_share_one_log(
    clients: Mapping[str, Client], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    expected: list[bytes | None] = []
    for turn in range(2):
        for name in NAMES:
            messages = numbered(3, f"{name} {turn}")
            clients[name].write(topic, 0, clients[name].expressible(messages), compression="gzip")
            expected += [message.value for message in messages]
    for name in NAMES:
        found = clients[name].read(topic, 0, 0, len(expected))
        assert [stored.message.value for stored in found] == expected
