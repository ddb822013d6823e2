"""Defines every option of the format "millstream" in one table; the driver parses and checks them before it reads data.

An invalid option raises INVALID_SETTING with the option's name. Option names are case-insensitive, as always in Spark.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from millstream.model.default_bootstrap import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import check_topic_name
from millstream.model.start_words import BEGINNING, FOLLOW_START, READ_START, start_word
from millstream.model.units import read_size_bytes
from millstream.records.compression import Compression
from millstream.sdk.connection.address import parse_bootstrap
from millstream.spark.reading.offset_bounds import OffsetBound, PartitionBounds, offset_places, time_places
from millstream.spark.values.options import AvroFraming, BadValues, ValueFormat, ValueOptions, ValueShape, value_options


class DataLoss(StrEnum):
    """Reaction to messages that no longer exist, because they expired or their topic was deleted and recreated."""

    FAIL = "fail"
    EARLIEST = "earliest"
    """Read what still exists."""
    SKIP = "skip"
    """Skip the whole missing range and continue after it."""


class RowOrder(StrEnum):
    """Order in which a task writes its rows."""

    GIVEN = "given"
    SORTED = "sorted"
    """By content, so that a repeated task writes the same order again."""


class Option(NamedTuple):
    """One row of the table. `parse` raises ValueError or MillstreamError for an invalid value."""

    name: str
    parse: Callable[[str], Any]
    default: Any = None


def _text(given: str) -> str:
    if not given.strip():
        raise ValueError("must not be empty")
    return given.strip()


def _bootstrap(given: str) -> str:
    parse_bootstrap(given)
    return given


def _path(given: str) -> str:
    text = _text(given)
    return text if "://" in text else os.path.abspath(text)


def _topics(given: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    for name in names:
        check_topic_name(name)
    return names


def _pattern(given: str) -> str:
    try:
        re.compile(given)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return _text(given)


def _partitions(given: str) -> dict[str, tuple[int, ...]]:
    form = ValueError('expected JSON like {"orders": [0, 1]}')
    try:
        read = json.loads(given)
    except ValueError:
        raise form from None
    if not isinstance(read, dict) or not read:
        raise form
    for topic, numbers in read.items():
        check_topic_name(topic)
        if not isinstance(numbers, list) or not numbers or not all(type(each) is int and each >= 0 for each in numbers):
            raise form
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in read.items()}


def _count(given: str) -> int:
    if not given.strip().isdecimal() or not int(given):
        raise ValueError("expected a whole number, 1 or more")
    return int(given)


def _flag(given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return given.lower() == "true"


def _compression(given: str) -> str:
    name = given.strip().lower()
    Compression.named(name)
    return name


def _data_loss(given: str) -> DataLoss:
    if start_word(given) == BEGINNING:
        return DataLoss.EARLIEST
    return DataLoss(_one_of(DataLoss)(given))


def _size(given: str) -> int:
    """Parse a number of bytes, 1 or more, with or without a unit."""
    size_bytes = read_size_bytes(given)
    if size_bytes < 1:
        raise ValueError("expected a size of 1 byte or more")
    return size_bytes


def _one_of(choices: type[StrEnum]) -> Callable[[str], StrEnum]:
    def parse(given: str) -> StrEnum:
        try:
            return choices(given.lower())
        except ValueError:
            raise ValueError(f"expected one of {', '.join(choices)}") from None

    return parse


TABLE = (
    Option("bootstrap", _bootstrap),
    Option("topic", _topics),
    Option("topicPattern", _pattern),
    Option("partitions", _partitions),
    Option("startingOffsets", offset_places),
    Option("startingTimestamp", time_places),
    Option("endingOffsets", offset_places),
    Option("endingTimestamp", time_places),
    Option("minPartitions", _count, 1),
    Option("maxRowsPerTrigger", _count),
    Option("maxBytesPerTrigger", _size),
    Option("dataLoss", _data_loss, DataLoss.FAIL),
    Option("includeHeaders", _flag, False),
    Option("valueFormat", _one_of(ValueFormat), ValueFormat.BINARY),
    Option("valueSchema", _text),
    Option("valueShape", _one_of(ValueShape), ValueShape.COLUMNS),
    Option("badValues", _one_of(BadValues), BadValues.FAIL),
    Option("avroFraming", _one_of(AvroFraming), AvroFraming.PLAIN),
    Option("group", _text),
    Option("archive", _path),
    Option("txnId", _text),
    Option("compression", _compression, "none"),
    Option("rowOrder", _one_of(RowOrder)),
)

_SINKS = frozenset({"bootstrap", "topic", "txnId", "compression", "rowOrder"})

SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark also passes to sources and sinks, which ignore them."""

_ROWS = {row.name.lower(): row for row in TABLE}

_KAFKAS = {
    "kafka.bootstrap.servers": "bootstrap",
    "subscribe": "topic",
    "subscribepattern": "topicPattern",
    "assign": "partitions",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "failondataloss": "dataLoss",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "kafka.group.id": "group",
}
"""Names of the Spark Kafka connector's options, and the Millstream options that correspond to them."""


def default_bootstrap() -> str:
    """Returns the brokers to use if the option `bootstrap` is not set."""
    return os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP


def parse_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Returns all options of the table by name, with defaults for those that were not given."""
    chosen: dict[str, Any] = {row.name: row.default for row in TABLE}
    for name, text in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        row = _ROWS.get(name.lower())
        if row is None:
            raise _unknown(name)
        try:
            chosen[row.name] = row.parse(text)
        except ValueError as error:
            raise invalid(row.name, text, str(error)) from None
        except MillstreamError as error:
            raise invalid(row.name, text, error.detail) from None
    return chosen


def _unknown(name: str) -> MillstreamError:
    if name.lower() == "path":
        text = "the format millstream has no path; name what to read or write with the option topic"
    elif name.lower() in _KAFKAS:
        text = f"unknown option {name}; use {_KAFKAS[name.lower()]} instead"
    else:
        text = f"unknown option {name} (accepted: {', '.join(row.name for row in TABLE)})"
    return MillstreamError(ErrorCode.INVALID_SETTING, text)


def invalid(name: str, given: object, why: str) -> MillstreamError:
    """Returns the error for an option with an invalid value."""
    return MillstreamError(ErrorCode.INVALID_SETTING, f"option {name}={given!r}: {why}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Parsed and checked options of a source."""

    bootstrap: str
    topics: tuple[str, ...]
    pattern: str | None
    partitions: Mapping[str, tuple[int, ...]] | None
    starting: PartitionBounds
    ending: PartitionBounds | None
    min_tasks: int
    max_rows: int | None
    max_bytes: int | None
    data_loss: DataLoss
    values: ValueOptions
    group: str | None
    archive: str | None = None

    def wants(self, topic: str) -> bool:
        """True if the options select a topic of this name."""
        return topic in self.topics if self.pattern is None else re.fullmatch(self.pattern, topic) is not None


def source_options(chosen: Mapping[str, Any], *, streaming: bool) -> SourceOptions:
    """Returns the options of a source.

    Raises INVALID_SETTING for options that are missing, contradict each other, or belong to streams only.
    """
    ways = [name for name in ("topic", "topicPattern", "partitions") if chosen[name] is not None]
    if len(ways) != 1:
        found = f"found {' and '.join(ways)}" if ways else "found none"
        text = f"set exactly one of the options topic, topicPattern and partitions; {found}"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    if not streaming:
        for name in ("maxRowsPerTrigger", "maxBytesPerTrigger", "group"):
            if chosen[name] is not None:
                raise _only_streams(name)
    starting = _either(chosen, "startingOffsets", "startingTimestamp")
    ending = _either(chosen, "endingOffsets", "endingTimestamp")
    latest = PartitionBounds(OffsetBound.latest())
    default = offset_places(FOLLOW_START if streaming else READ_START)
    return SourceOptions(
        bootstrap=chosen["bootstrap"] or default_bootstrap(),
        topics=chosen["topic"] or tuple(chosen["partitions"] or ()),
        pattern=chosen["topicPattern"],
        partitions=chosen["partitions"],
        starting=starting or default,
        ending=ending or (None if streaming else latest),
        min_tasks=chosen["minPartitions"],
        max_rows=chosen["maxRowsPerTrigger"],
        max_bytes=chosen["maxBytesPerTrigger"],
        data_loss=chosen["dataLoss"],
        values=value_options(chosen),
        group=chosen["group"],
        archive=chosen["archive"],
    )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Parsed and checked options of a sink."""

    bootstrap: str
    topic: str | None
    txn_id: str | None
    compression: str
    row_order: RowOrder | None


def sink_options(chosen: Mapping[str, Any], *, streaming: bool) -> SinkOptions:
    """Returns the options of a sink.

    Raises INVALID_SETTING for options that contradict each other or belong to a source.
    """
    for row in TABLE:
        if row.name not in _SINKS and chosen[row.name] != row.default:
            text = f"the option {row.name} is for reading only (options for writing: {', '.join(sorted(_SINKS))})"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    topics = chosen["topic"]
    if topics is not None and len(topics) > 1:
        text = "expected one topic; to write to several, name the topic of each row in a column topic"
        raise invalid("topic", ",".join(topics), text)
    if streaming and chosen["txnId"] is not None:
        text = "applies to tables only (df.write); a stream is identified by its checkpoint"
        raise invalid("txnId", chosen["txnId"], text)
    return SinkOptions(
        bootstrap=chosen["bootstrap"] or default_bootstrap(),
        topic=None if topics is None else topics[0],
        txn_id=chosen["txnId"],
        compression=chosen["compression"],
        row_order=chosen["rowOrder"],
    )


def _either(chosen: Mapping[str, Any], first: str, second: str) -> PartitionBounds | None:
    if chosen[first] is not None and chosen[second] is not None:
        raise MillstreamError(
            ErrorCode.INVALID_SETTING, f"the options {first} and {second} exclude each other; set one"
        )
    found: PartitionBounds | None = chosen[first] or chosen[second]
    return found


def _only_streams(name: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_SETTING, f"the option {name} applies to streams only (spark.readStream)")
