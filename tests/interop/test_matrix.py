"""Tests that the messages of each writing client are read unaltered by each other client."""

import time
from collections.abc import Callable, Mapping

import pytest

from interop.clients.ability import Ability
from interop.clients.client import COMPRESSIONS, Client, Message
from interop.clients.every import NAMES, able

CODECS = {"none": (), **{name: (Ability[name.upper()],) for name in COMPRESSIONS if name != "none"}}
# Recent, because messages older than the retention time may be removed at any time.
BEGIN_MS = int(time.time() * 1000) - 3_600_000


def sample_messages() -> list[Message]:
    """Build messages of every kind, long and repetitive enough that every codec compresses the batch."""
    kinds = [
        Message(b"plain", b"key", (("trace", b"0f"), ("again", b"1"), ("again", b"2"))),
        Message(b"no key"),
        Message(None, b"no value: a tombstone"),
        Message(b"", b""),
        Message("größer — \u2713".encode(), "schlüssel".encode(), (("näme", "wört".encode()),)),
        Message(b"headers without content", b"key", (("empty", b""), ("null", None))),
        Message(b"0123456789abcdef" * 3000, b"large"),
    ]
    kinds += [Message(b"filling %04d " % number * 8, b"key-%d" % (number % 7)) for number in range(200)]
    # Two seconds apart, so that a rounded or lost timestamp is detected.
    return [
        Message(message.value, message.key, message.headers, BEGIN_MS + 2_000 * number)
        for number, message in enumerate(kinds)
    ]


@pytest.fixture(scope="module")
def written(
    clients: Mapping[str, Client], new_topic: Callable[..., str]
) -> Callable[[str, str], tuple[str, int, list[Message]]]:
    """Provide a function that writes the samples with one client and codec, once, and returns their location."""
    known: dict[tuple[str, str], tuple[str, int, list[Message]]] = {}

    def write(writer: str, compression: str) -> tuple[str, int, list[Message]]:
        if (writer, compression) not in known:
            topic = new_topic()
            messages = clients[writer].expressible(sample_messages())
            clients[writer].write(topic, 0, messages, compression=compression)
            known[writer, compression] = (topic, 0, messages)
        return known[writer, compression]

    return write


@pytest.mark.parametrize("reader", able(Ability.CONSUME))
@pytest.mark.parametrize(
    ("writer", "compression"), [(writer, name) for name, needed in CODECS.items() for writer in able(*needed)]
)
def test_messages_of_each_client_are_read_unaltered_by_all_others(
    clients: Mapping[str, Client],
    written: Callable[[str, str], tuple[str, int, list[Message]]],
    writer: str,
    reader: str,
    compression: str,
) -> None:
    topic, partition, messages = written(writer, compression)
    found = clients[reader].read(topic, partition, 0, len(messages))
    assert [stored.offset for stored in found] == list(range(len(messages)))
    for sent, stored in zip(messages, found, strict=True):
        assert sent.matches(stored.message)


@pytest.mark.parametrize("reader", able(Ability.CONSUME))
@pytest.mark.parametrize("compression", ["lz4", "snappy"])
def test_compressed_blocks_of_the_sdk_are_read_by_all_clients(
    clients: Mapping[str, Client], new_topic: Callable[..., str], reader: str, compression: str
) -> None:
    topic = new_topic()
    messages = [Message(b"0123456789abcdef" * (size // 16)) for size in (60_000, 250_000, 900_000, 2_500_000)]
    for message in messages:  # One batch per message.
        clients["millstream"].write(topic, 0, [message], compression=compression)
    found = clients[reader].read(topic, 0, 0, len(messages))
    assert [stored.message.value for stored in found] == [message.value for message in messages]


@pytest.mark.parametrize("reader", able(Ability.CONSUME))
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_reader_can_start_in_the_middle_of_a_batch(
    clients: Mapping[str, Client],
    written: Callable[[str, str], tuple[str, int, list[Message]]],
    reader: str,
    compression: str,
) -> None:
    topic, partition, messages = written("confluent-kafka", compression)
    found = clients[reader].read(topic, partition, 101, 20)
    assert [stored.offset for stored in found] == list(range(101, 121))
    assert [stored.message.value for stored in found] == [message.value for message in messages[101:121]]


@pytest.mark.parametrize("reader", able(Ability.TIME))
@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [(BEGIN_MS - 1, 0), (BEGIN_MS, 0), (BEGIN_MS + 2 * 57_000 - 1, 57), (BEGIN_MS + 2 * 57_000, 57)],
    ids=["before the first", "the first", "between two", "exactly one"],
)
def test_a_timestamp_finds_the_first_message_at_or_after_it(
    clients: Mapping[str, Client],
    written: Callable[[str, str], tuple[str, int, list[Message]]],
    reader: str,
    timestamp_ms: int,
    offset: int,
) -> None:
    topic, partition, _ = written("confluent-kafka", "lz4")
    assert clients[reader].offset_for_time(topic, partition, timestamp_ms) == offset


# The other clients return the log end instead.
@pytest.mark.parametrize("reader", [name for name in NAMES if name not in ("kcat", "confluent-kafka", "kafkajs")])
def test_a_timestamp_after_the_last_message_finds_no_offset(
    clients: Mapping[str, Client], written: Callable[[str, str], tuple[str, int, list[Message]]], reader: str
) -> None:
    topic, partition, messages = written("confluent-kafka", "lz4")
    assert clients[reader].offset_for_time(topic, partition, BEGIN_MS + 2_000 * len(messages)) is None


@pytest.mark.parametrize("reader", NAMES)
def test_earliest_and_latest_are_the_ends_of_the_log(
    clients: Mapping[str, Client], written: Callable[[str, str], tuple[str, int, list[Message]]], reader: str
) -> None:
    topic, partition, messages = written("java", "gzip")
    assert clients[reader].ends(topic, partition) == (0, len(messages))
