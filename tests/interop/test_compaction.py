"""Tests that every client reads a compacted topic, from its beginning and from offsets of removed messages."""

import asyncio
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import pytest

from interop.clients.client import Client, Message, RefusedError, SettingsClient, Stored
from millstream.records.record import Record
from millstream.sdk.requests import LATEST
from millstream.sdk.wire_client import WireClient

READERS = ("confluent-kafka", "kcat", "aiokafka", "kafka-python", "java", "millstream")
CLEANED_S = 60.0
INVALID_RECORD = 87
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01"}


class Compacted(NamedTuple):
    """A compacted topic, with the written and the remaining messages."""

    topic: str
    written: list[Message]
    left: list[Record]


async def read_whole(bootstrap: str, topic: str) -> list[Record]:
    client = WireClient(bootstrap)
    try:
        end = await client.list_offset(topic, 0, LATEST)
        assert end is not None
        records: list[Record] = []
        position = 0
        while position < end.offset:
            fetched = await client.fetch(topic, 0, position)
            records += fetched.records
            position = fetched.next_offset
        return records
    finally:
        client.close()


@pytest.fixture(scope="module")
def compacted(clients: Mapping[str, Client], bootstrap: str, new_topic: Callable[..., str]) -> Compacted:
    """Provide a compacted topic of many values of few keys, with a tombstone, in batches of all kinds."""
    topic = new_topic(1, COMPACTED)
    writer = clients["confluent-kafka"]
    written: list[Message] = []
    for number, compression in enumerate(["none", "gzip", "lz4", "zstd", "snappy", "none"]):
        some = [Message(b"%d/%d." % (number, n) * 40, b"key-%d" % (n % 7)) for n in range(150)]
        some.insert(75, Message(b"only once", b"single-%d" % number))
        if number == 3:
            some.append(Message(None, b"key-6"))
        if number > 3:
            some = [message for message in some if message.key != b"key-6"]
        for first in range(0, len(some), 50):  # A batch must fit into a segment.
            part = some[first : first + 50]
            writer.write(topic, 0, part, compression=compression, idempotent=number % 2 == 0)
        written += some
    fillers = [Message(b"%d" % n * 5000, b"filler-%d" % n) for n in range(8)]
    for filler in fillers:  # Closes the earlier segments.
        writer.write(topic, 0, [filler])
    written += fillers
    deadline_s = time.monotonic() + CLEANED_S
    while time.monotonic() < deadline_s:
        left = asyncio.run(read_whole(bootstrap, topic))
        if len(left) == len({message.key for message in written}):
            return Compacted(topic, written, left)
    raise AssertionError(f"after {CLEANED_S} s there are {len(left)} messages of {len(written)}")


def table(messages: list[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    return dict(messages)


def test_compaction_keeps_the_last_message_of_each_key(compacted: Compacted) -> None:
    expected = table([(message.key, message.value) for message in compacted.written])
    assert table([(record.key, record.value) for record in compacted.left]) == expected
    assert expected[b"key-6"] is None
    for record in compacted.left:
        assert compacted.written[record.offset].value == record.value


@pytest.mark.parametrize("reader", READERS)
def test_every_client_reads_a_compacted_log_from_any_offset(
    clients: Mapping[str, Client], compacted: Compacted, reader: str
) -> None:
    offsets = [record.offset for record in compacted.left]
    inside = [(one + other) // 2 for one, other in pairwise([-1, *offsets]) if other - one > 2]
    assert len(inside) >= 2
    for begin in [0, inside[0], inside[-1]]:
        wanted = [record for record in compacted.left if record.offset >= begin]
        found = clients[reader].read(compacted.topic, 0, begin, len(wanted))
        assert [as_record(stored) for stored in found] == [(r.offset, r.key, r.value, r.timestamp) for r in wanted]
        assert clients[reader].ends(compacted.topic, 0) == (0, len(compacted.written))


def as_record(stored: Stored) -> tuple[int, bytes | None, bytes | None, int | None]:
    return stored.offset, stored.message.key, stored.message.value, stored.message.timestamp_ms


@pytest.mark.parametrize(
    ("writer", "number"),
    [
        ("confluent-kafka", INVALID_RECORD),
        ("kafka-python", INVALID_RECORD),
        ("java", INVALID_RECORD),
        ("aiokafka", -1),  # aiokafka has no name for this error.
    ],
)
def test_a_message_without_a_key_is_refused(
    clients: Mapping[str, Client], new_topic: Callable[..., str], writer: str, number: int
) -> None:
    topic = new_topic(1, {"cleanup.policy": "compact"})
    with pytest.raises(RefusedError) as refused:
        clients[writer].write(topic, 0, [Message(b"no key")])
    assert refused.value.number == number


@pytest.mark.parametrize("keeper", ["confluent-kafka", "aiokafka", "kafka-python"])
def test_records_are_deleted_up_to_an_offset(
    clients: Mapping[str, Client], keepers: Mapping[str, SettingsClient], new_topic: Callable[..., str], keeper: str
) -> None:
    topic = new_topic()
    clients["millstream"].write(topic, 0, [Message(b"%d" % number) for number in range(10)])
    assert keepers[keeper].delete_records(topic, 0, 4) == 4
    assert clients["millstream"].ends(topic, 0) == (4, 10)
    assert keepers[keeper].delete_records(topic, 0, -1) == 10
