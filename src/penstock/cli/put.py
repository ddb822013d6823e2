"""`penstock put`: write messages."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import failures_explained, usage_error
from penstock.cli.options import DEFAULT_BOOTSTRAP, PARTITIONS_MAX, AsJson, Bootstrap, Timeout, TopicName
from penstock.cli.output import counted, print_json, print_line
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.limits import REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from penstock.sdk.putting import Place

READ_BYTES = 1024 * 1024
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"all": -1, "1": 1, "0": 0}


class Summary:
    """What was stored, or only sent where nobody answers for it, for the line at the end."""

    def __init__(self, topic: str, *, as_json: bool, answered: bool) -> None:
        self._topic = topic
        self._as_json = as_json
        self._answered = answered
        self._count = 0
        self._last: Place | None = None

    def add(self, places: "list[Place]") -> None:
        self._count += len(places)
        self._last = places[-1] if places else self._last
        if self._as_json:
            for place in places:
                print_json({"topic": place.topic, "partition": place.partition, "offset": place.offset})
            sys.stdout.flush()

    def end(self) -> None:
        if self._as_json:
            return
        if self._count == 1 and self._last is not None and self._last.offset >= 0:
            print_line(f"Stored in {self._topic}, partition {self._last.partition}, at offset {self._last.offset}.")
        elif self._answered:
            print_line(f"Stored {counted(self._count, 'message')} in {self._topic}.")
        else:
            print_line(f"Sent {counted(self._count, 'message')} to {self._topic}.")


def put(
    topic: TopicName,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MESSAGE]…", help="Messages; without any, each line of standard input is one.", show_default=False
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every message.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Stands between key and message.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every message.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, max=PARTITIONS_MAX, help="Partition; otherwise the key decides."),
    ] = None,
    compression: Annotated[str, typer.Option("--compression", "-z", metavar="|".join(COMPRESSIONS))] = "none",
    acks: Annotated[
        str, typer.Option("--acks", metavar="|".join(ACKS), help="Who must have it before it counts.")
    ] = "all",
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Write messages: the arguments, or the lines of standard input.

    Each message is stored once, however often it had to be sent. What was typed is sent at once, line by line.
    """
    with failures_explained(as_json):
        _check_flags(key, key_separator, compression, acks)
        if not values and sys.stdin is None:
            raise usage_error("there are no messages: neither arguments nor a standard input")
        rows = [_header(text) for text in headers or ()]
        from penstock.cli.session import connected

        summary = Summary(topic, as_json=as_json, answered=ACKS[acks] != 0)
        portions = iter([[os.fsencode(value) for value in values]]) if values else lines_as_they_come(_read_input)
        with connected(bootstrap, timeout) as session:
            for keys, messages in _split_all(portions, key, key_separator):
                operation = session.client.put(
                    topic,
                    messages,
                    keys=keys,
                    headers=[rows] * len(messages) if rows else None,
                    partition=partition,
                    compression=compression,
                    acks=ACKS[acks],
                    timeout_s=timeout,
                )
                summary.add(session.run(operation))
            if ACKS[acks] == 0:
                # Nobody answers for these; the answer to a later question shows that the broker has read them.
                session.run(session.client.metadata([], timeout_s=timeout))
        summary.end()


def _check_flags(key: str | None, key_separator: str | None, compression: str, acks: str) -> None:
    if key is not None and key_separator is not None:
        raise usage_error("--key and --key-separator exclude each other")
    if key_separator == "":
        raise usage_error("--key-separator must not be empty")
    _check_choice("--compression", compression, COMPRESSIONS)
    _check_choice("--acks", acks, tuple(ACKS))


def lines_as_they_come(read: Callable[[int], bytes]) -> Iterator[list[bytes]]:
    """Lines in portions, from a `read` that gives what is there and nothing at the end: no line waits for the next."""
    begun: list[bytes] = []
    begun_bytes = 0
    while data := read(READ_BYTES):
        first, *others = data.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > REQUEST_BYTES_MAX:
            raise PenstockError(
                ErrorCode.MESSAGE_TOO_LARGE, f"a line is longer than {REQUEST_BYTES_MAX} bytes, which no broker takes"
            )
        if others:
            *whole, rest = others
            yield [b"".join(begun), *whole]
            begun, begun_bytes = [rest], len(rest)
    if begun_bytes:
        yield [b"".join(begun)]


def _read_input(size: int) -> bytes:
    return os.read(sys.stdin.fileno(), size)


def _split_all(
    portions: Iterator[list[bytes]], key: str | None, separator: str | None
) -> Iterator[tuple[list[bytes | None] | None, list[bytes]]]:
    """Keys and messages; an error tells which message, counted from 1, has no separator."""
    done = 0
    for lines in portions:
        if separator is None:
            yield None if key is None else [os.fsencode(key)] * len(lines), lines
        else:
            yield _split(lines, os.fsencode(separator), done)
        done += len(lines)


def _split(lines: list[bytes], separator: bytes, done: int) -> tuple[list[bytes | None], list[bytes]]:
    keys: list[bytes | None] = []
    messages: list[bytes] = []
    for number, line in enumerate(lines, done + 1):
        key, found, message = line.partition(separator)
        if not found:
            raise usage_error(f"message {number} has no {os.fsdecode(separator)!r} between key and message")
        keys.append(key)
        messages.append(message)
    return keys, messages


def _header(text: str) -> tuple[str, bytes]:
    name, sign, value = text.partition("=")
    if not sign or not name or not name.isprintable():
        raise usage_error(f"--header {text!r}: expected NAME=VALUE")
    return name, os.fsencode(value)


def _check_choice(flag: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise usage_error(f"{flag} {value!r}: expected one of {', '.join(choices)}")
