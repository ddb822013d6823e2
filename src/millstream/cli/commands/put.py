"""Implements `millstream put`, which writes messages."""

import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import (
    ACKS,
    COMPRESSIONS,
    DEFAULT_BOOTSTRAP,
    PARTITIONS_MAX,
    Acks,
    AsJson,
    Bootstrap,
    Compression,
    Timeout,
    TopicName,
    check_choice,
)
from millstream.cli.positions import parse_time
from millstream.seams.clock import SystemClock

if TYPE_CHECKING:
    from millstream.cli.messages.message_input import Header, MessageChunk, MessageToPut, Parse

HASH_MAX = 2**63 - 1


def put(
    topic: TopicName,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MESSAGE]...", help="Messages (default: the lines of standard input).", show_default=False
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="File whose lines are messages (repeatable; - is standard input)."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Read each file, or all of standard input, as one message.")
    ] = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Parse each line as a JSON object with value, key, headers and more.")
    ] = False,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every message.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Text between key and value.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every message (repeatable)."),
    ] = None,
    null_value: Annotated[
        str | None, typer.Option("--null-value", metavar="TEXT", help="Text that stands for a null value.")
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="Write a tombstone: one message with the --key and a null value.")
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, max=PARTITIONS_MAX, help="Partition (default: chosen by the key)."),
    ] = None,
    by_hash: Annotated[
        int | None,
        typer.Option("--hash", min=-HASH_MAX, max=HASH_MAX, help="Choose the partition: hash modulo partition count."),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="Time of every message: ISO 8601, @milliseconds, or an age."),
    ] = None,
    compression: Compression = "none",
    acks: Acks = "all",
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Write messages: the arguments, the lines of files, or the lines of standard input.

    Each message is stored once, even if it is sent several times. A typed line is sent immediately.
    """
    with failures_explained(as_json):
        check_choice("--compression", compression, COMPRESSIONS)
        check_choice("--acks", acks, ACKS)
        _check_key(key, key_separator, json_lines=json_lines, tombstone=tombstone)
        if by_hash is not None and (partition is not None or json_lines):
            raise usage_error("--hash cannot be combined with --partition or --json-lines")
        if sum((bool(values), bool(files), tombstone)) > 1:
            raise usage_error("give messages as arguments, with --file or with --tombstone; these cannot be combined")
        if whole and (values or tombstone or json_lines):
            raise usage_error("--whole cannot be combined with message arguments, --tombstone or --json-lines")
        sources = [] if values or tombstone else files or ["-"]
        if "-" in sources and sys.stdin is None:
            raise usage_error("there are no messages: no arguments were given and standard input is closed")
        from millstream.cli.messages.message_input import MessageToPut
        from millstream.cli.messages.topic_writes import WriteOptions, write
        from millstream.sdk.producing.options import ProducerSettings

        common = MessageToPut(
            None,
            None if key is None else os.fsencode(key),
            tuple(_header(text) for text in headers or ()),
            partition,
            None if timestamp is None else parse_time(timestamp, "--timestamp", SystemClock().wall_ms()),
        )
        parse = _parser(common, key_separator, null_value, json_lines=json_lines)
        chunks = _chunks(values, sources, common, parse, whole=whole, tombstone=tombstone)
        if not (values or files or tombstone):
            chunks = _required(chunks)
        options = ProducerSettings(compression=compression, acks=ACKS[acks], timeout_s=timeout, in_order=True)
        how = WriteOptions(topic, options, by_hash)
        write(chunks, how, bootstrap, total_bytes=_total_bytes(sources), as_json=as_json)


def _chunks(
    values: list[str] | None,
    sources: list[str],
    common: "MessageToPut",
    parse: "Parse",
    *,
    whole: bool,
    tombstone: bool,
) -> "Iterator[MessageChunk]":
    from millstream.cli.messages.message_input import MessageChunk, given_messages, messages_of

    if tombstone:
        return iter([MessageChunk([common], [(0, "the tombstone", 1)])])
    if values:
        return given_messages([os.fsencode(value) for value in values], parse)
    return messages_of(sources, parse, whole=whole)


def _required(chunks: "Iterator[MessageChunk]") -> "Iterator[MessageChunk]":
    """Yields the chunks. Raises a usage error at their end if they had no message."""
    is_empty = True
    for chunk in chunks:
        is_empty = is_empty and not chunk.messages
        yield chunk
    if is_empty:
        what = "give messages as arguments, as lines of standard input, with --file or with --tombstone"
        raise usage_error(f"there are no messages: standard input is empty; {what} ('' is an empty message)")


def _check_key(key: str | None, key_separator: str | None, *, json_lines: bool, tombstone: bool) -> None:
    if key is not None and key_separator is not None:
        raise usage_error("--key and --key-separator cannot be combined")
    if key_separator == "":
        raise usage_error("--key-separator must not be empty")
    if key_separator is not None and json_lines:
        raise usage_error("--key-separator and --json-lines cannot be combined: JSON lines have a field for the key")
    if tombstone and key is None:
        raise usage_error("--tombstone needs --key: a tombstone deletes the messages of its key")


def _parser(common: "MessageToPut", separator: str | None, null_value: str | None, *, json_lines: bool) -> "Parse":
    """Returns the function that parses a line. `common` holds what the flags set for all messages."""
    null = None if null_value is None else os.fsencode(null_value)
    if json_lines:
        return partial(_parse_json, common)
    if separator is None:
        return partial(_parse_plain, common, null)
    return partial(_parse_with_key, common, null, os.fsencode(separator))


def _parse_plain(common: "MessageToPut", null: bytes | None, line: bytes) -> "MessageToPut":
    if line == null and common.key is None:
        from millstream.sdk.producing.put_arguments import TOMBSTONE_WITHOUT_KEY

        raise ValueError(TOMBSTONE_WITHOUT_KEY)
    return common._replace(value=None if line == null else line)


def _parse_with_key(common: "MessageToPut", null: bytes | None, separator: bytes, line: bytes) -> "MessageToPut":
    key, found, rest = line.partition(separator)
    if not found:
        text = os.fsdecode(separator)
        raise ValueError(f"there is no {text!r} between key and value; correct the line, or choose another separator")
    return common._replace(value=None if rest == null else rest, key=key)


def _parse_json(common: "MessageToPut", line: bytes) -> "MessageToPut":
    from millstream.cli.messages.json_lines import parse_line
    from millstream.cli.messages.message_input import MessageToPut

    own = parse_line(line)
    return MessageToPut(
        own.value,
        common.key if own.key is None else own.key,
        (*common.headers, *own.headers),
        common.partition if own.partition is None else own.partition,
        common.timestamp_ms if own.timestamp_ms is None else own.timestamp_ms,
    )


def _total_bytes(sources: list[str]) -> int | None:
    """Returns the number of bytes to read, or None if it is not known in advance."""
    try:
        return sum(os.stat(path).st_size for path in sources) if sources and "-" not in sources else None
    except OSError:
        return None


def _header(text: str) -> "Header":
    name, sign, value = text.partition("=")
    if not sign or not name or not name.isprintable():
        raise usage_error(f"--header {text!r}: expected NAME=VALUE")
    return name, os.fsencode(value)
