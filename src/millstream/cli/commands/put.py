"""`millstream put`: write messages."""

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
            metavar="[MESSAGE]...",
            help="Messages; without any, each line of standard input is one.",
            show_default=False,
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="Each line of it is a message (repeatable); - is standard input."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Each file, or all of standard input, is one message.")
    ] = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Each message is a JSON object with value, key, headers and more.")
    ] = False,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every message.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Stands between key and message.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every message (repeatable)."),
    ] = None,
    null_value: Annotated[
        str | None, typer.Option("--null-value", metavar="TEXT", help="A message of this text has no value.")
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="Write one message with the --key and without a value.")
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, max=PARTITIONS_MAX, help="Partition; otherwise the key decides."),
    ] = None,
    by_hash: Annotated[
        int | None,
        typer.Option("--hash", min=-HASH_MAX, max=HASH_MAX, help="Decides the partition, by its remainder."),
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

    Each message is stored once, however often it had to be sent. What was typed is sent at once, line by line.
    """
    with failures_explained(as_json):
        check_choice("--compression", compression, COMPRESSIONS)
        check_choice("--acks", acks, ACKS)
        _check_key(key, key_separator, json_lines=json_lines, tombstone=tombstone)
        if by_hash is not None and (partition is not None or json_lines):
            raise usage_error("--hash decides the partition of all messages; leave out --partition and --json-lines")
        if sum((bool(values), bool(files), tombstone)) > 1:
            raise usage_error("messages come from arguments, from --file or from --tombstone, not from several of them")
        if whole and (values or tombstone or json_lines):
            raise usage_error("--whole is for files and standard input, and not for JSON lines")
        sources = [] if values or tombstone else files or ["-"]
        if "-" in sources and sys.stdin is None:
            raise usage_error("there are no messages: neither arguments nor a standard input")
        from millstream.cli.messages.message_input import MessageToPut
        from millstream.cli.messages.topic_writes import WriteOptions, write
        from millstream.sdk.producing.options import ProducerOptions

        common = MessageToPut(
            None,
            None if key is None else os.fsencode(key),
            tuple(_header(text) for text in headers or ()),
            partition,
            None if timestamp is None else parse_time(timestamp, "--timestamp", SystemClock().wall_ms()),
        )
        parse = _parser(common, key_separator, null_value, json_lines=json_lines)
        portions = _portions(values, sources, common, parse, whole=whole, tombstone=tombstone)
        options = ProducerOptions(compression=compression, acks=ACKS[acks], timeout_s=timeout, in_order=True)
        how = WriteOptions(topic, options, by_hash)
        write(portions, how, bootstrap, total_bytes=_total_bytes(sources), as_json=as_json)


def _portions(
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


def _check_key(key: str | None, key_separator: str | None, *, json_lines: bool, tombstone: bool) -> None:
    if key is not None and key_separator is not None:
        raise usage_error("--key and --key-separator exclude each other")
    if key_separator == "":
        raise usage_error("--key-separator must not be empty")
    if key_separator is not None and json_lines:
        raise usage_error("--key-separator and --json-lines exclude each other: JSON has a field for the key")
    if tombstone and key is None:
        raise usage_error("--tombstone needs a --key: it says that the key's last message counts no more")


def _parser(common: "MessageToPut", separator: str | None, null_value: str | None, *, json_lines: bool) -> "Parse":
    """What makes a message of a line, with what the flags say of all of them."""
    null = None if null_value is None else os.fsencode(null_value)
    if json_lines:
        return partial(_parse_json, common)
    if separator is None:
        return partial(_parse_plain, common, null)
    return partial(_parse_with_key, common, null, os.fsencode(separator))


def _parse_plain(common: "MessageToPut", null: bytes | None, line: bytes) -> "MessageToPut":
    return common._replace(value=None if line == null else line)


def _parse_with_key(common: "MessageToPut", null: bytes | None, separator: bytes, line: bytes) -> "MessageToPut":
    key, found, rest = line.partition(separator)
    if not found:
        text = os.fsdecode(separator)
        raise ValueError(f"there is no {text!r} between key and message; mend the line, or choose another separator")
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
    """How much there is to read, where that can be known beforehand."""
    try:
        return sum(os.stat(path).st_size for path in sources) if sources and "-" not in sources else None
    except OSError:
        return None


def _header(text: str) -> "Header":
    name, sign, value = text.partition("=")
    if not sign or not name or not name.isprintable():
        raise usage_error(f"--header {text!r}: expected NAME=VALUE")
    return name, os.fsencode(value)
