"""Tests the inputs of `millstream put` against a real broker."""

import json
import os
import signal
from pathlib import Path

import pytest

from builders.command import TIMEOUT_S, Command
from builders.terminal import Terminal


def test_lines_of_files_are_messages(millstream: Command, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    (tmp_path / "b").write_bytes(b"3")
    said = millstream.succeed("put", topic, "--file", str(tmp_path / "a"), "--file", "-", given=b"x\n").output
    assert said.decode() == f"Stored 3 messages in {topic}, partition 0, at offsets 0 to 2.\n"
    millstream.succeed("put", topic, "--file", str(tmp_path / "b"))
    assert millstream.succeed("get", topic).lines == [b"1", b"2", b"x", b"3"]


def test_put_with_whole_and_get_with_raw_keep_every_byte(millstream: Command, topic: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 100
    (tmp_path / "picture").write_bytes(data)
    millstream.succeed("put", topic, "--file", str(tmp_path / "picture"), "--whole")
    millstream.succeed("put", topic, "--whole", given=b"\n\n")
    assert millstream.succeed("get", topic, "--raw").output == data + b"\n\n"


def test_json_output_of_get_can_be_put_again(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "-p", "3", "--setting", "retention.ms=none")
    lines = [
        {"value": "a", "key": "k", "headers": {"h": "1"}, "partition": 2, "timestamp": 1000},
        {"value_base64": "/wA=", "partition": 1},
        {"value": None, "key": "k", "partition": 0},
    ]
    given = "".join(json.dumps(line) + "\n" for line in lines).encode()
    places = millstream.succeed("put", topic, "--json-lines", "--json", given=given).documents
    assert [place["partition"] for place in places] == [2, 1, 0]
    read = millstream.succeed("get", topic, "--json")
    copy = f"{topic}-copy"
    millstream.succeed("topic", "create", copy, "-p", "3", "--setting", "retention.ms=none")
    millstream.succeed("put", copy, "--json-lines", given=read.output)
    again = millstream.succeed("get", copy, "--json").documents
    assert [{**row, "topic": topic} for row in again] == read.documents
    assert again[2]["timestamp"] == 1000


def test_tombstones_are_written(millstream: Command, topic: str) -> None:
    millstream.succeed("put", topic, "--tombstone", "--key", "gone")
    millstream.succeed("put", topic, "--key-separator", ":", "--null-value", "NULL", given=b"k:NULL\nk:v\n")
    rows = [(row["key"], row["value"]) for row in millstream.succeed("get", topic, "--json").documents]
    assert rows == [("gone", None), ("k", None), ("k", "v")]


@pytest.mark.parametrize("flags", [(), ("--key", "k"), ("--json-lines",)])
def test_put_refuses_an_empty_standard_input(millstream: Command, topic: str, flags: tuple[str, ...]) -> None:
    ended = millstream.run("put", topic, *flags, given=b"")
    assert ended.code == 2
    assert "there are no messages: standard input is empty; give messages as arguments" in ended.errors


def test_put_accepts_an_empty_message_and_an_empty_file_that_was_named(millstream: Command, topic: str) -> None:
    millstream.succeed("put", topic, "")
    millstream.succeed("put", topic, "--file", "-", given=b"")
    assert [row["value"] for row in millstream.succeed("get", topic, "--json").documents] == [""]


def test_put_refuses_a_null_value_without_a_key(millstream: Command, topic: str) -> None:
    ended = millstream.run("put", topic, "--null-value", "NULL", given=b"a\nNULL\n")
    assert ended.code == 2
    assert "standard input, line 2: a null value is a tombstone and needs the key" in ended.errors


def test_put_writes_the_given_timestamp(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "--setting", "retention.ms=none")
    millstream.succeed("put", topic, "old", "--timestamp", "2001-02-03T04:05:06Z")
    (row,) = millstream.succeed("get", topic, "--json").documents
    assert row["timestamp"] == 981_173_106_000


@pytest.mark.parametrize(
    ("flags", "given", "problem"),
    [
        (("--key-separator", ":"), b"k:v\nnothing\nk:w\n", "standard input, line 2: there is no ':'"),
        (("--json-lines",), b'{"value": "v"}\n{"vlaue": "w"}\n', "standard input, line 2: Object contains unknown"),
        (("--json-lines",), b'{"value": "v"}\n\n', "standard input, line 2: "),
    ],
)
def test_an_invalid_line_is_reported_with_the_number_of_messages_stored_before(
    millstream: Command, topic: str, flags: tuple[str, ...], given: bytes, problem: str
) -> None:
    ended = millstream.run("put", topic, *flags, given=given)
    assert ended.code == 2
    assert problem in ended.errors
    assert "1 message was stored" in ended.errors
    assert len(millstream.succeed("get", topic).lines) == 1


def test_a_refused_message_is_reported_with_the_number_of_messages_stored(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "--setting", "max.message.bytes=1000")
    ended = millstream.run("put", topic, given=b"small\n" + b"x" * 2000 + b"\n" + b"small\n")
    assert ended.code == 1
    assert "the first failed message is line 2 of standard input" in ended.errors
    assert "was stored" in ended.errors
    assert millstream.succeed("get", topic).lines[:1] == [b"small"]


def test_the_summary_of_put_lists_the_partitions(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic, "-p", "6")
    lines = b"".join(b'{"value": "v", "partition": %d}\n' % number for number in (0, 0, 3))
    said = millstream.succeed("put", topic, "--json-lines", given=lines).output.decode()
    assert said == (
        f"Stored 3 messages in {topic}: 2 in partition 0, at offsets 0 to 1; 1 in partition 3, at offset 0.\n"
    )
    lines = b"".join(b'{"value": "v", "partition": %d}\n' % number for number in range(6))
    said = millstream.succeed("put", topic, "--json-lines", given=lines).output.decode()
    assert said == f"Stored 6 messages in {topic}, in 6 partitions.\n"
    ended = millstream.run("put", topic, "--json-lines", given=b'{"value": "v", "partition": 99}\n')
    assert ended.code == 1
    assert "has no partition 99" in ended.errors


def test_get_filters_messages_by_key_and_header(millstream: Command, topic: str) -> None:
    millstream.succeed("put", topic, "1", "--key", "a", "--header", "x=1")
    millstream.succeed("put", topic, "2", "--key", "a", "--header", "x=2")
    millstream.succeed("put", topic, "3", "--key", "b")
    assert millstream.succeed("get", topic, "--key", "a").lines == [b"1", b"2"]
    assert millstream.succeed("get", topic, "--header", "x").lines == [b"1", b"2"]
    assert millstream.succeed("get", topic, "--header", "x=2", "--key", "a").lines == [b"2"]
    assert millstream.succeed("get", topic, "--key", "a", "--count", "1").lines == [b"1"]


def test_put_of_a_large_input_uses_little_memory(millstream: Command, topic: str) -> None:
    """Held as objects, all of these lines would take twice the memory that is allowed here."""
    line = b"x" * 99 + b"\n"
    with millstream.running("put", topic, "--compression", "lz4") as put:
        assert put.stdin is not None
        for _ in range(60):
            put.stdin.write(line * 10_000)
        peak_kib = int(
            next(
                row.split()[1]
                for row in Path(f"/proc/{put.pid}/status").read_text().splitlines()
                if row.startswith("VmHWM")
            )
        )
        put.stdin.close()
        assert put.stdout is not None
        assert put.stdout.read().decode().startswith("Stored 600000 messages in")
        assert put.wait(TIMEOUT_S) == 0
    assert peak_kib < 90 * 1024


def test_progress_is_shown_on_a_terminal(millstream: Command, topic: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with Terminal(millstream, "put", topic, "--file", str(pipe)) as terminal:
        with pipe.open("wb", buffering=0) as feed:
            while topic not in terminal.text:
                feed.write(b"line\n")
                terminal.look(0.05)
        terminal.expect("Stored ")
        assert terminal.ended() == 0


def test_ctrl_c_makes_put_print_how_many_messages_were_stored(millstream: Command, topic: str) -> None:
    millstream.succeed("topic", "create", topic)
    with millstream.running("put", topic) as put:
        assert put.stdin is not None
        assert put.stdout is not None
        for count in (1, 2):
            put.stdin.write(b"line\n")
            put.stdin.flush()
            while len(millstream.succeed("get", topic).lines) < count:
                assert put.poll() is None
        put.send_signal(signal.SIGINT)
        # The second line is stored, so the summary includes the first; it may not include the second yet.
        assert put.stdout.read().decode() in (
            f"Stored in {topic}, partition 0, at offset 0.\n",
            f"Stored 2 messages in {topic}, partition 0, at offsets 0 to 1.\n",
        )
        assert put.wait(TIMEOUT_S) == 130
