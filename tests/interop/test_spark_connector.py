"""Tests Spark's Kafka connector, in batch and streaming queries, on topics that other clients read and write."""

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from bench.spark.connector import Connector

from interop.clients.client import Client, Message, Stored
from millstream.spark.java import java_environment

BEGIN_MS = int(time.time() * 1000) - 3_600_000
STEP_MS = 2_000
MESSAGES = [
    Message(b"plain", b"key", (("trace", b"0f"), ("again", b"1"), ("again", b"2")), BEGIN_MS),
    Message(b"no key", timestamp_ms=BEGIN_MS + STEP_MS),
    Message(None, b"no value", timestamp_ms=BEGIN_MS + 2 * STEP_MS),
    Message(b"", b"", (("empty", b""), ("null", None)), BEGIN_MS + 3 * STEP_MS),
    *(Message(b"%d" % number, b"key", (), BEGIN_MS + number * STEP_MS) for number in range(4, 20)),
]


@pytest.fixture(scope="module")
def connector() -> Iterator[Connector]:
    made = Connector(java_environment({}, bundled=True))
    yield made
    made.close()


@pytest.fixture(scope="module")
def topic(clients: Mapping[str, Client], new_topic: Callable[..., str]) -> str:
    """Provide a topic with the same messages in both partitions."""
    name = new_topic(2)
    for partition in range(2):
        clients["millstream"].write(name, partition, MESSAGES)
    return name


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def text_of(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def stored(row: Mapping[str, Any]) -> Stored:
    headers = tuple((name, bytes_of(content)) for name, content in row["headers"] or ())
    return Stored(row["offset"], Message(bytes_of(row["value"]), bytes_of(row["key"]), headers, row["timestamp"]))


def rows(connector: Connector, bootstrap: str, topic: str, **options: str) -> dict[int, list[Stored]]:
    """Read a table and return its rows by partition."""
    read = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true", **options}
    found: dict[int, list[Stored]] = {}
    for row in connector.ask("read", options=read):
        found.setdefault(row["partition"], []).append(stored(row))
    return {number: sorted(each, key=lambda one: one.offset) for number, each in found.items()}


def places(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


def test_a_table_has_every_message_with_headers_timestamp_and_offset(
    connector: Connector, bootstrap: str, topic: str
) -> None:
    written = [Stored(offset, message) for offset, message in enumerate(MESSAGES)]
    assert rows(connector, bootstrap, topic) == {0: written, 1: written}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": (3, 18), "endingOffsets": (5, -1)}, {0: [3, 4], 1: [18, 19]}),
        (
            {
                "startingOffsetsByTimestamp": (BEGIN_MS + 17 * STEP_MS, BEGIN_MS + STEP_MS // 2),
                "endingOffsetsByTimestamp": (BEGIN_MS + 18 * STEP_MS + 1, BEGIN_MS + 3 * STEP_MS),
            },
            {0: [17, 18], 1: [1, 2]},
        ),
    ],
    ids=["offsets", "times"],
)
def test_a_table_starts_and_ends_at_offsets_or_timestamps(
    connector: Connector,
    bootstrap: str,
    topic: str,
    options: Mapping[str, tuple[int, ...]],
    wanted: Mapping[int, list[int]],
) -> None:
    found = rows(connector, bootstrap, topic, **{name: places(topic, *each) for name, each in options.items()})
    assert {number: [each.offset for each in some] for number, some in found.items()} == wanted


def test_a_table_is_written_with_headers_to_the_given_partitions(
    clients: Mapping[str, Client], connector: Connector, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    target = new_topic(2)
    messages = [Message(each.value, each.key, each.headers) for each in MESSAGES]
    given = [
        (text_of(each.key), text_of(each.value), [(name, text_of(content)) for name, content in each.headers], 1)
        for each in messages
    ]
    connector.ask("write", options={"kafka.bootstrap.servers": bootstrap, "topic": target}, rows=given)
    found = [each.message for each in clients["millstream"].read(target, 1, 0, len(messages))]
    # Spark splits the rows into tasks that write concurrently.
    for message in messages:
        assert sum(message.matches(each) for each in found) == 1
    assert clients["confluent-kafka"].ends(target, 0) == (0, 0)


def test_a_stream_copies_a_topic_and_resumes_from_its_checkpoint(
    clients: Mapping[str, Client],
    connector: Connector,
    bootstrap: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    source, target = new_topic(2), new_topic()
    for partition in range(2):
        clients["millstream"].write(source, partition, MESSAGES)
    # A stream may also start at timestamps.
    reading = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": source,
        "includeHeaders": "true",
        "startingOffsetsByTimestamp": places(source, BEGIN_MS + 5 * STEP_MS, BEGIN_MS),
        "maxOffsetsPerTrigger": "10",
    }
    copy = {
        "options": reading,
        "to": {"kafka.bootstrap.servers": bootstrap, "topic": target},
        "checkpoint": str(tmp_path),
    }
    wanted = [*MESSAGES[5:], *MESSAGES]
    assert connector.ask("copy", **copy) == len(wanted)
    assert connector.ask("copy", **copy) == 0
    later = [Message(b"later")]
    clients["confluent-kafka"].write(source, 0, later)
    assert connector.ask("copy", **copy) == len(later)
    found = clients["millstream"].read(target, 0, 0, len(wanted) + len(later))
    contents = [(each.message.value, each.message.key, each.message.headers) for each in found]
    assert sorted(contents, key=repr) == sorted(
        ((each.value, each.key, each.headers) for each in (*wanted, *later)), key=repr
    )
