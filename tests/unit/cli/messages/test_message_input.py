"""Tests how the input of `put` is read and parsed to messages."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.cli.messages import message_input
from millstream.cli.messages.json_lines import parse_line
from millstream.cli.messages.message_input import (
    BadMessageError,
    MessageChunk,
    MessageToPut,
    ReadAhead,
    given_messages,
    lines_as_they_come,
    messages_of,
)
from millstream.model.errors import ErrorCode, MillstreamError


def plain(line: bytes) -> MessageToPut:
    if line == b"bad":
        raise ValueError("it is bad")
    return MessageToPut(line)


def reader(*pieces: bytes) -> Callable[[int], bytes]:
    rest = iter([*pieces, b""])
    return lambda size: next(rest)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\nb"], [b"a", b"b"]),
        ([b"a", b"b\n\n", b"c"], [b"ab", b"", b"c"]),
        ([b"\n"], [b""]),
        ([], []),
    ],
)
def test_lines_are_split_across_reads(pieces: list[bytes], lines: list[bytes]) -> None:
    portions = list(lines_as_they_come("here", reader(*pieces)))
    assert [line for portion, _ in portions for line in portion] == lines
    assert sum(size for _, size in portions) == sum(map(len, pieces))


def test_a_line_is_yielded_before_the_next_one_is_read() -> None:
    pieces = iter([b"first\n"])
    assert next(lines_as_they_come("here", lambda size: next(pieces))) == ([b"first"], 6)


def test_an_endless_line_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(MillstreamError) as caught:
        list(lines_as_they_come("here", lambda size: bytes(size)))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2")
    (tmp_path / "b").write_bytes(b"3\n")
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    portions = list(messages_of(paths, plain, whole=False))
    assert [message.value for portion in portions for message in portion.messages] == [b"1", b"2", b"3"]
    assert portions[-1].origin(0) == (paths[1], 1)
    (first, second) = messages_of(paths, plain, whole=True)
    assert (first.messages, second.messages) == ([MessageToPut(b"1\n2")], [MessageToPut(b"3\n")])


@pytest.mark.parametrize("what", ["missing", "directory"])
def test_a_file_that_cannot_be_read_is_reported_by_name(tmp_path: Path, what: str) -> None:
    path = str(tmp_path / "missing") if what == "missing" else str(tmp_path)
    with pytest.raises(MillstreamError) as caught:
        list(messages_of([path], plain, whole=False))
    assert caught.value.code is ErrorCode.INVALID_SETTING
    assert path in caught.value.detail


def test_merged_chunks_keep_the_source_and_line_of_each_message() -> None:
    whole = MessageChunk()
    whole.add(MessageChunk([MessageToPut(b"a"), MessageToPut(b"b")], [(0, "one", 7)]))
    whole.add(MessageChunk([MessageToPut(b"c"), MessageToPut(b"d")], [(0, "two", 1)]))
    assert [whole.origin(index) for index in range(4)] == [("one", 7), ("one", 8), ("two", 1), ("two", 2)]


def test_read_ahead_yields_all_messages_in_order() -> None:
    lines = [b"%d" % number for number in range(1000)]

    def portions() -> Iterator[MessageChunk]:
        for line in lines:
            yield from given_messages([line], plain)

    assert [message.value for portion in ReadAhead(portions()) for message in portion.messages] == lines


def test_an_invalid_line_raises_after_the_valid_lines_before_it() -> None:
    ahead = ReadAhead(given_messages([b"good", b"fine", b"bad", b"never"], plain))
    portions = iter(ahead)
    assert next(portions).messages == [MessageToPut(b"good"), MessageToPut(b"fine")]
    with pytest.raises(BadMessageError, match="the arguments, line 3: it is bad"):
        next(portions)


def test_the_number_of_chunks_read_ahead_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_input, "AHEAD", 4)
    monkeypatch.setattr(message_input, "SEND_BYTES", 3)
    made: list[int] = []

    def portions() -> Iterator[MessageChunk]:
        for number in range(100):
            made.append(number)
            yield MessageChunk([MessageToPut(b"x")], [(0, "here", 1)], size_bytes=1)

    ahead = iter(ReadAhead(portions()))
    first = next(ahead)
    assert len(first.messages) <= 3
    assert len(made) <= 3 + 4 + 2
    assert sum(len(portion.messages) for portion in ahead) + len(first.messages) == 100


def test_read_ahead_can_be_closed_during_a_blocking_read() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as out, os.fdopen(read, "rb") as into:
        out.write(b"a\n")
        out.flush()

        def portions() -> Iterator[MessageChunk]:
            for lines, size in lines_as_they_come("pipe", lambda size: os.read(into.fileno(), size)):
                yield MessageChunk([MessageToPut(line) for line in lines], [(0, "pipe", 1)], size)

        ahead = ReadAhead(portions())
        assert next(iter(ahead)).messages == [MessageToPut(b"a")]
        ahead.close()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"value": "v"}', MessageToPut(b"v")),
        ('{"value": "ü", "key": "k"}', MessageToPut("ü".encode(), b"k")),
        ('{"value": null, "key": "k"}', MessageToPut(None, b"k")),
        ('{"value_base64": "/wA=", "key_base64": ""}', MessageToPut(b"\xff\x00", b"")),
        ('{"value": "", "headers": {"a": "1", "b": null}}', MessageToPut(b"", None, (("a", b"1"), ("b", None)))),
        (
            '{"value": "v", "headers": [{"name": "a", "value": "1"}, {"name": "a", "value_base64": "/w=="}]}',
            MessageToPut(b"v", None, (("a", b"1"), ("a", b"\xff"))),
        ),
        ('{"value": "v", "partition": 3, "timestamp": 17}', MessageToPut(b"v", None, (), 3, 17)),
        ('{"topic": "t", "offset": 5, "action": "delete", "value": null}', MessageToPut(None)),
    ],
)
def test_a_json_line_is_parsed_to_a_message(line: str, message: MessageToPut) -> None:
    assert parse_line(line.encode()) == message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "malformed|truncated"),
        ("xx", "malformed"),
        ("[1]", "Expected `object`"),
        ("{}", 'missing "value"'),
        ('{"key": "k"}', 'missing "value"'),
        ('{"value": 1}', r"\$\.value"),
        ('{"vaule": "v"}', "vaule"),
        ('{"value": "v", "value_base64": ""}', "expected only one"),
        ('{"value_base64": "?"}', "not valid base64"),
        ('{"value": "v", "partition": -1}', r"\$\.partition"),
        ('{"value": "v", "timestamp": 9223372036854775808}', r"\$\.timestamp"),
        ('{"value": "v", "timestamp": "now"}', r"\$\.timestamp"),
        ('{"value": "v", "headers": [{"value": "1"}]}', "name"),
        ('{"value": null, "action": "commit"}', "commit"),
        ('{"value": "\\ud800"}', "truncated|malformed"),
    ],
)
def test_an_invalid_json_line_is_refused_with_the_reason(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_line(line.encode())
