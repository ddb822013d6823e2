"""Tests `put`, `get`, `topic` and `info` against a real broker."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from builders.command import TIMEOUT_S, Command
from builders.sdk.writing_client import WritingClient
from millstream import __version__
from millstream.sdk.producing.row_partitioning import partition_for
from millstream.testing.real_broker import RealBroker


def test_get_prints_the_messages_of_put(millstream: Command, topic: str) -> None:
    assert (
        millstream.succeed("put", topic, "hello").output == f"Stored in {topic}, partition 0, at offset 0.\n".encode()
    )
    said = f"Stored 3 messages in {topic}, partition 0, at offsets 1 to 3.\n"
    assert millstream.succeed("put", topic, "a", "b", "ü").output.decode() == said
    assert millstream.succeed("get", topic).lines == [b"hello", b"a", b"b", "ü".encode()]


def test_each_line_of_standard_input_is_a_message(millstream: Command, topic: str) -> None:
    lines = [b"", b"\xff\xfe", b"x" * 100_000, b"last"]
    places = millstream.succeed("put", topic, "--json", given=b"\n".join(lines)).documents
    assert [place["offset"] for place in places] == [0, 1, 2, 3]
    assert millstream.succeed("get", topic).output == b"\n".join(lines) + b"\n"


def test_many_lines_arrive_in_order(millstream: Command, topic: str) -> None:
    lines = [b"line %d" % number for number in range(50_000)]
    millstream.succeed("put", topic, "--compression", "lz4", given=b"\n".join(lines) + b"\n")
    assert millstream.succeed("get", topic).lines == lines


def test_a_typed_line_is_sent_before_the_next_one(millstream: Command, topic: str) -> None:
    with millstream.running("put", topic, "--json") as put:
        assert put.stdin is not None
        assert put.stdout is not None
        for number in range(3):
            put.stdin.write(b"line\n")
            put.stdin.flush()
            assert b'"offset": %d' % number in put.stdout.readline()
        put.stdin.close()
        assert put.wait(TIMEOUT_S) == 0


def test_keys_headers_and_times_are_shown(millstream: Command, topic: str) -> None:
    millstream.succeed("put", topic, "value", "--key", "key", "--header", "a=1", "--header", "b=x=y")
    (document,) = millstream.succeed("get", topic, "--json").documents
    assert (document["key"], document["value"]) == ("key", "value")
    assert document["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": "x=y"}]
    line = millstream.succeed("get", topic, "--verbose").output
    assert b"0:0  key  value a=1 b=x=y" in line


def test_a_message_with_an_id_header_is_stored_once_and_keeps_its_offset(millstream: Command, topic: str) -> None:
    message = ("put", topic, "paid", "--header", "millstream.id=order-17", "--json")
    places = [millstream.succeed(*message).documents for _ in range(2)]
    assert places == [
        [{"topic": topic, "partition": 0, "offset": 0, "duplicate": is_duplicate}] for is_duplicate in (False, True)
    ]
    again = millstream.succeed(*message[:-1]).output.decode()
    assert again == f"Stored in {topic}, partition 0, at offset 0. 1 message was stored before, under the same id.\n"
    (document,) = millstream.succeed("get", topic, "--json").documents
    assert document["headers"] == [{"name": "millstream.id", "value": "order-17"}]
    refused = millstream.run("put", topic, "paid", "--header", "millstream.id=~order-17")
    assert (refused.code, refused.output) == (1, b"")
    assert refused.errors.startswith(
        "millstream: message id b'~order-17': ids that begin with ~ are reserved for producers"
    )


def test_key_before_the_separator_determines_the_partition(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "--partitions", "4")
    lines = b"".join(b"key-%d:value:%d\n" % (number, number) for number in range(20))
    millstream.succeed("put", topic, "--key-separator", ":", given=lines)
    documents = millstream.succeed("get", topic, "--json").documents
    assert len(documents) == 20
    for document in documents:
        assert document["partition"] == partition_for(document["key"].encode(), 4)
        assert document["value"] == "value:" + document["key"].removeprefix("key-")


def test_a_line_without_the_separator_is_reported_with_its_number(millstream: Command, topic: str) -> None:
    ended = millstream.run("put", topic, "--key-separator", ":", given=b"k:v\nnothing\n")
    assert ended.code == 2
    assert "standard input, line 2: there is no ':'" in ended.errors
    assert "1 message was stored" in ended.errors


def test_a_partition_can_be_chosen_for_writing_and_reading(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "-p", "3")
    millstream.succeed("put", topic, "two", "--partition", "2")
    assert millstream.succeed("get", topic, "--partition", "2").lines == [b"two"]
    assert millstream.succeed("get", topic, "--partition", "1").lines == []
    ended = millstream.run("get", topic, "--partition", "7")
    assert ended.code == 1
    assert "has no partition 7; it has 0 to 2" in ended.errors


@pytest.fixture(scope="module")
def timed(broker: RealBroker) -> str:
    """Returns a topic with six messages, `0` to `5`, whose timestamps are 0 s to 5 s."""

    async def fill() -> None:
        async with await WritingClient.connect(broker.bootstrap) as client:
            values = [b"%d" % number for number in range(6)]
            await client.create_topic("timed", settings={"retention.ms": "-1"})
            await client.put("timed", values, timestamps_ms=[1000 * number for number in range(6)])

    asyncio.run(fill())
    return "timed"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--from", "1", "--to", "3"), "12"),
        (("--from", "@1500", "--to", "@3500"), "23"),
        (("--from", "4", "--count", "2", "--follow"), "45"),
        (("--from", "100"), ""),
    ],
)
def test_get_reads_the_requested_range(millstream: Command, timed: str, flags: tuple[str, ...], expected: str) -> None:
    ended = millstream.succeed("get", timed, *flags)
    assert b"".join(ended.lines).decode() == expected


@pytest.mark.parametrize("partitions", ["1", "3"])
def test_get_follow_prints_new_messages_until_ctrl_c(millstream: Command, topic: str, partitions: str) -> None:
    millstream.succeed("topic", "create", topic, "--partitions", partitions)
    with millstream.running("get", topic, "--follow") as get:
        assert get.stdout is not None
        for number in range(3):
            millstream.succeed("put", topic, f"message {number}")
            assert get.stdout.readline() == b"message %d\n" % number
        get.send_signal(signal.SIGINT)
        output, errors = get.communicate(timeout=TIMEOUT_S)
        assert (get.returncode, output, errors) == (130, b"", b"")


def test_a_closed_pipe_ends_the_command_without_an_error_message(millstream: Command, topic: str) -> None:
    millstream.succeed("put", topic, given=b"0123456789\n" * 50_000)
    with millstream.running("get", topic) as get:
        assert get.stdout is not None
        assert get.stderr is not None
        assert get.stdout.readline() == b"0123456789\n"
        get.stdout.close()
        assert get.stderr.read() == b""
        assert get.wait(TIMEOUT_S) == 141


def test_topics_are_created_listed_and_deleted(millstream: Command, topic: str) -> None:
    (created,) = millstream.succeed(
        "topic", "create", topic, "--partitions", "2", "--set", "retention.ms=3600000", "--json"
    ).documents
    assert (created["name"], created["partitions"]) == (topic, 2)
    millstream.succeed("put", topic, "a", "b", "c")
    (page,) = millstream.succeed("topic", "list", "--all", "--json").documents
    (row,) = [document for document in page["topics"] if document["name"] == topic]
    assert (row["id"], row["partitions"], row["messages"]) == (created["id"], 2, 3)
    assert topic.encode() in millstream.succeed("topic", "list").output
    assert millstream.run("topic", "delete", topic).code == 2
    assert topic.encode() in millstream.succeed("topic", "list").output
    assert millstream.succeed("topic", "delete", topic, "--yes").output == f"Deleted topic {topic}.\n".encode()
    assert topic.encode() not in millstream.succeed("topic", "list").output


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("topic", "create", "timed"), "TOPIC_ALREADY_EXISTS"),
        (("topic", "create", "__mine"), "INVALID_TOPIC"),
        (("topic", "create", "new", "--set", "cleanup.policy=shred"), "INVALID_CONFIG"),
        (("topic", "create", "new", "--replication-factor", "3"), "INVALID_REPLICATION_FACTOR"),
        (("get", "missing"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
@pytest.mark.usefixtures("timed")
def test_a_refusal_is_explained_and_exits_with_1(millstream: Command, arguments: tuple[str, ...], error: str) -> None:
    ended = millstream.run(*arguments, "--json")
    assert ended.code == 1
    assert json.loads(ended.errors)["error"] == error
    assert "Traceback" not in ended.errors


def test_a_refusal_names_the_topic_once(millstream: Command) -> None:
    ended = millstream.run("topic", "create", "a", "--replication-factor", "3")
    assert ended.errors.startswith("millstream: topic 'a': replication factor 3 is not supported; use 1\n")


@pytest.mark.parametrize("arguments", [("topic", "create", "u.alice"), ("put", "u.alice", "hi")])
def test_a_reserved_topic_name_is_refused_with_the_same_text_everywhere(
    millstream: Command, arguments: tuple[str, ...]
) -> None:
    ended = millstream.run(*arguments)
    assert ended.code == 1
    assert ended.errors == "millstream: bad topic name 'u.alice': names that begin with '__' or 'u.' are reserved\n"


def test_a_message_that_is_too_large_is_refused_with_a_hint(millstream: Command, topic: str) -> None:
    ended = millstream.run("put", topic, given=b"x" * 3_000_000)
    assert ended.code == 1
    assert "max.message.bytes" in ended.errors


@pytest.mark.parametrize(
    ("acks", "said"), [("all", "Stored 2 messages in"), ("1", "Stored"), ("0", "Sent 2 messages to")]
)
def test_put_accepts_weaker_acknowledgements(millstream: Command, topic: str, acks: str, said: str) -> None:
    assert millstream.succeed("put", topic, "a", "b", "--acks", acks).output.decode().startswith(said)
    assert millstream.succeed("get", topic).lines == [b"a", b"b"]


def test_info_shows_the_brokers_version_and_clock_drift(millstream: Command) -> None:
    (document,) = millstream.succeed("info", "--json").documents
    assert document["broker"]["version"] == __version__
    assert abs(document["broker"]["drift_ms"]) < 60_000
    assert document["local"]["millstream"] == __version__
    assert b"record codec" in millstream.succeed("info").output


def test_a_topic_name_that_is_not_utf8_is_refused_without_a_traceback(millstream: Command) -> None:
    ended = millstream.run("put", os.fsdecode(b"\xff"), "message")
    assert ended.code == 1
    assert "bad topic name" in ended.errors
    assert "Traceback" not in ended.errors


def test_put_continues_when_the_broker_is_restarted(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        millstream = Command(broker.bootstrap)
        with millstream.running("put", "t", "--json") as put:
            assert put.stdin is not None
            assert put.stdout is not None
            for number in range(3):
                put.stdin.write(b"line %d\n" % number)
                put.stdin.flush()
                assert json.loads(put.stdout.readline())["offset"] == number
                broker.kill()
                broker.start()
            put.stdin.close()
            assert put.wait(TIMEOUT_S) == 0
        assert millstream.succeed("get", "t").lines == [b"line 0", b"line 1", b"line 2"]


def test_a_failed_write_to_the_output_is_reported(millstream: Command, timed: str) -> None:
    with open("/dev/full", "wb") as full, millstream.running("get", timed, output=full) as get:
        assert get.stderr is not None
        assert get.stderr.read() == b"millstream: No space left on device\n"
        assert get.wait(TIMEOUT_S) == 1
