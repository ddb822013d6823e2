"""Implements `millstream get`, which reads messages."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    From,
    OnlyPartitions,
    Raw,
    Timeout,
    TopicName,
    Verbose,
)
from millstream.cli.output import lines_for_terminal, print_bytes, printable, record_document, shown
from millstream.cli.positions import Offset, parse_position
from millstream.model.start_words import READ_START
from millstream.seams.clock import SystemClock

if TYPE_CHECKING:
    from millstream.records.record import Record


def get(
    topic: TopicName,
    partitions: OnlyPartitions = None,
    start: From = READ_START,
    end: Annotated[str | None, typer.Option("--to", "-t", metavar="POSITION", help="Position to stop before.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Maximum number of messages.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only messages with this key.")] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME[=VALUE]", help="Only messages with this header (repeatable)."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Wait for new messages at the end, until Ctrl-C.")
    ] = False,
    verbose: Verbose = False,
    raw: Raw = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Read messages and print each value on its own line. In a terminal, control characters of values are escaped.

    Without --follow it stops at the end that the topic had when the command started. Partitions are read one after the
    other, or concurrently with --follow. Messages that --key and --header exclude are still sent by the broker, but
    they are neither printed nor counted.
    """
    with failures_explained(as_json):
        now_ms = SystemClock().wall_ms()
        first = parse_position(start, "--from", now_ms)
        last = parse_position(end, "--to", now_ms) if end is not None else None
        if follow and last is not None and not isinstance(last, Offset):
            raise usage_error(
                "--to: only an offset is accepted with --follow, because new messages may have old timestamps"
            )
        if as_json + verbose + raw > 1:
            raise usage_error("--json, --verbose and --raw cannot be combined")
        from millstream.cli.messages.topic_reads import TopicRead
        from millstream.cli.session import connected
        from millstream.cli.suggestions import topic_expected

        printer = MessagePrinter(topic, as_json=as_json, verbose=verbose, raw=raw)
        with connected(bootstrap, timeout) as session, topic_expected(session, topic):
            reading = TopicRead(session.client, topic, timeout, follow=follow)
            select = selection(key, headers or ())
            session.run(reading.run(partitions or (), first, last, count, printer.write, select))


def selection(key: str | None, headers: Sequence[str]) -> "Callable[[Record], bool] | None":
    """Returns a filter by key and headers, or None if all messages match. A header without `=` matches any value."""
    if key is None and not headers:
        return None
    key_bytes = None if key is None else os.fsencode(key)
    requested = [
        (name, os.fsencode(value) if sign else None) for name, sign, value in (h.partition("=") for h in headers)
    ]

    def has(record: "Record", name: str, value: bytes | None) -> bool:
        return any(name == found and value in (None, data) for found, data in record.headers)

    def matches(record: "Record") -> bool:
        return (key is None or record.key == key_bytes) and all(has(record, name, value) for name, value in requested)

    return matches


class MessagePrinter:
    """Writes messages in the requested format.

    A terminal would interpret control characters of a message, so it gets them escaped. With `raw`, and if standard
    output is not a terminal, the bytes of values are unchanged.
    """

    def __init__(self, topic: str, *, as_json: bool = False, verbose: bool = False, raw: bool = False) -> None:
        self._topic = topic
        self._is_terminal = sys.stdout.isatty()
        self._line = self._terminal_line if self._is_terminal else self._value_line
        if as_json:
            self._line = self._json_line
        elif verbose:
            self._line = self._verbose_line
        elif raw:
            self._line = self._raw

    def write(self, partition: int, records: "Sequence[Record]") -> None:
        print_bytes(b"".join([self._line(partition, record) for record in records]))

    def _raw(self, partition: int, record: "Record") -> bytes:
        return record.value or b""

    def _value_line(self, partition: int, record: "Record") -> bytes:
        return (record.value or b"") + b"\n"

    def _terminal_line(self, partition: int, record: "Record") -> bytes:
        return lines_for_terminal(record.value or b"").encode() + b"\n"

    def _json_line(self, partition: int, record: "Record") -> bytes:
        document = record_document(self._topic, partition, record)
        text = json.dumps(document, ensure_ascii=False)
        if self._is_terminal and not text.isprintable():
            text = json.dumps(document)
        return text.encode(errors="backslashreplace") + b"\n"

    def _verbose_line(self, partition: int, record: "Record") -> bytes:
        headers = "".join(f" {printable(name)}={shown(value)}" for name, value in record.headers)
        parts = (_time(record.timestamp), f"{partition}:{record.offset}", shown(record.key), shown(record.value))
        return ("  ".join(parts) + headers + "\n").encode()


def _time(timestamp_ms: int) -> str:
    """Formats a timestamp as local time, or as `@milliseconds` if it is beyond the calendar. A negative one is `-`."""
    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"@{timestamp_ms}"
