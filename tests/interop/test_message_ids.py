"""Tests that every client reads messages that were stored under message ids (Puts over a plain socket)."""

import time
from collections.abc import Callable, Mapping

import pytest

from builders.batches import batch_with_ids
from interop.clients.ability import Ability
from interop.clients.client import Client, Message
from interop.clients.every import able
from interop.wire import Fields, ask
from millstream.model.errors import ErrorCode
from millstream.model.message_id import ID_HEADER, MadeId
from millstream.records.batch import encode_batch

WRITER = 123_456_789
"""A producer id larger than any that a broker of these tests assigns."""

CODECS = {"none": (), "zstd": (Ability.ZSTD,)}
PAIRS = [(reader, name) for name, needed in CODECS.items() for reader in able(Ability.CONSUME, *needed)]
RETRIED = MadeId(WRITER + 1, 0, 0, 2, 0)


def put(bootstrap: str, topic: str, records: bytes | bytearray, ids: list[bytes] | None) -> Fields:
    """Put one batch and return its result."""
    host, _, port = bootstrap.rpartition(":")
    entries = [{"partition": -1, "hash": -1, "records": bytes(records), "message_ids": ids}]
    fields = {"acks": -1, "timeout_ms": 30_000, "topics": [{"name": topic, "entries": entries}]}
    answer = ask(host, int(port), "Puts", 0, fields)
    result: Fields = answer["topics"][0]["entries"][0]
    return result


def put_all(bootstrap: str, topic: str, compression: str) -> list[Message]:
    """Put batches of all kinds, each twice; returns the messages that must be stored, once each."""
    now_ms = int(time.time() * 1000)  # Messages older than the retention time may be removed at any time.
    made = encode_batch(
        [b"made 0", b"made 1"],
        timestamps=now_ms,
        compression=compression,
        producer_id=WRITER,
        producer_epoch=0,
        base_sequence=0,
    )
    own = batch_with_ids(b"id-0", b"id-1", timestamp=now_ms, compression=compression)
    again = batch_with_ids(RETRIED.encode(), values=[b"retried"], timestamp=now_ms, compression=compression)
    for sent in range(2):
        assert put(bootstrap, topic, made, None)["base_offset"] == 0
        for records, ids, first in ((own, [b"id-0", b"id-1"], 2), (again, [RETRIED.encode()], 4)):
            result = put(bootstrap, topic, records, ids)
            if sent:
                assert result["error_code"] == ErrorCode.DUPLICATE_MESSAGE_ID.number
                assert [each["offset"] for each in result["known"]] == [first + n for n in range(len(ids))]
            else:
                assert (result["error_code"], result["base_offset"]) == (0, first)
    own_messages = [Message(each, headers=((ID_HEADER, each),)) for each in (b"id-0", b"id-1")]
    retried = Message(b"retried", headers=((ID_HEADER, RETRIED.encode()),))
    return [Message(b"made 0"), Message(b"made 1"), *own_messages, retried]


@pytest.fixture(scope="module")
def written(bootstrap: str, new_topic: Callable[..., str]) -> Callable[[str], tuple[str, list[Message]]]:
    """Provide a function that puts all kinds of batches with one codec, once, and returns topic and messages."""
    known: dict[str, tuple[str, list[Message]]] = {}

    def write(compression: str) -> tuple[str, list[Message]]:
        if compression not in known:
            topic = new_topic()
            known[compression] = (topic, put_all(bootstrap, topic, compression))
        return known[compression]

    return write


@pytest.mark.parametrize(("reader", "compression"), PAIRS)
def test_messages_with_ids_are_read_by_every_client(
    clients: Mapping[str, Client], written: Callable[[str], tuple[str, list[Message]]], reader: str, compression: str
) -> None:
    topic, messages = written(compression)
    found = clients[reader].read(topic, 0, 0, len(messages))
    assert [stored.offset for stored in found] == list(range(len(messages)))
    for sent, stored in zip(messages, found, strict=True):
        assert sent.matches(stored.message)
