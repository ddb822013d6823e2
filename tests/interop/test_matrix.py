"""Everybody writes, everybody reads: what one client stored is the same for each of the others."""

import time
from collections.abc import Callable, Mapping

import pytest

from interop.clients.ability import Ability
from interop.clients.client import COMPRESSIONS, Client, Message
from interop.clients.every import NAMES, able

CODECS = {"none": (), **{name: (Ability[name.upper()],) for name in COMPRESSIONS if name != "none"}}
# Recent, since messages older than the retention may be removed at any time.
BEGIN_MS = int(time.time() * 1000) - 3_600_000


def sample_messages() -> list[Message]:
    """One of each kind; long and repetitive enough that every codec really compresses the batch."""
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
    # Two seconds apart, so that a time stamp that was rounded or lost would show.
    return [
        Message(message.value, message.key, message.headers, BEGIN_MS + 2_000 * number)
        for number, message in enumerate(kinds)
    ]


@pytest.fixture(scope="module")
def written(
    clients: Mapping[str, Client], new_topic: Callable[..., str]
) -> Callable[[str, str], tuple[str, int, list[Message]]]:
    """Has one client write the samples with one codec, once, and tells where they are."""
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
def test_what_one_client_writes_another_reads_unaltered(
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
def test_blocks_of_every_size_that_the_sdk_compresses_are_read_by_all(
    clients: Mapping[str, Client], new_topic: Callable[..., str], reader: str, compression: str
) -> None:
    topic = new_topic()
    messages = [Message(b"0123456789abcdef" * (size // 16)) for size in (60_000, 250_000, 900_000, 2_500_000)]
    for message in messages:  # Each in a batch of its own.
        clients["millstream"].write(topic, 0, [message], compression=compression)
    found = clients[reader].read(topic, 0, 0, len(messages))
    assert [stored.message.value for stored in found] == [message.value for message in messages]


@pytest.mark.parametrize("reader", able(Ability.CONSUME))
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_reader_can_begin_in_the_middle_of_a_batch(
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
def test_a_time_stamp_leads_to_the_first_message_that_is_not_older(
    clients: Mapping[str, Client],
    written: Callable[[str, str], tuple[str, int, list[Message]]],
    reader: str,
    timestamp_ms: int,
    offset: int,
) -> None:
    topic, partition, _ = written("confluent-kafka", "lz4")
    assert clients[reader].offset_for_time(topic, partition, timestamp_ms) == offset


# The others answer with the end instead.
@pytest.mark.parametrize("reader", [name for name in NAMES if name not in ("kcat", "confluent-kafka", "kafkajs")])
def test_a_time_stamp_after_the_last_message_leads_nowhere(
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
