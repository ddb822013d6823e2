"""Converts messages, positions and settings between the contract's form and the gateway's."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millstream.gateway.failures import invalid, invalid_position, missing
from millstream.gateway.grpc.v1 import events_pb2 as pb
from millstream.gateway.grpc.v1 import topics_pb2
from millstream.gateway.operations.reads import Positions, TopicReader, check_time_ms, format_positions
from millstream.gateway.operations.writes import EventColumns, check_write_times, tombstone_without_key
from millstream.model.message_id import ID_HEADER
from millstream.model.names import TopicPartition
from millstream.model.start_words import BEGINNING, LATEST, READ_START
from millstream.records.message import Message
from millstream.sdk.admin.admin_results import ConfigSetting
from millstream.sdk.producing.put_arguments import TOMBSTONE_WITHOUT_KEY

_EDGES = {pb.EDGE_BEGINNING: BEGINNING, pb.EDGE_LATEST: LATEST}


def to_messages(messages: Iterable[Message]) -> list[pb.Message]:
    """Convert messages. The message id becomes a field and is left out of the headers."""
    found = []
    for message in messages:
        _, partition, offset, timestamp, key, value, headers = message
        one = pb.Message(
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp,
            value=value,
            key=key,
            message_id=message.message_id or b"",
        )
        for name, content in headers:
            if name != ID_HEADER:
                one.headers.add(name=name, value=content)
        found.append(one)
    return found


def to_partition_offsets(positions: Mapping[int, int]) -> pb.PartitionOffsets:
    rows = [pb.PartitionOffset(partition=number, offset=offset) for number, offset in sorted(positions.items())]
    return pb.PartitionOffsets(offsets=rows)


def to_topic_partition_offsets(offsets: Mapping[TopicPartition, int]) -> list[pb.TopicPartitionOffset]:
    return [
        pb.TopicPartitionOffset(topic=where.topic, partition=where.partition, offset=offset)
        for where, offset in sorted(offsets.items())
    ]


def to_topic_partitions(places: Iterable[TopicPartition]) -> list[pb.TopicPartition]:
    return [pb.TopicPartition(topic=where.topic, partition=where.partition) for where in places]


def partitions_of(rows: Iterable[pb.TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(row.topic, row.partition) for row in rows]


def edge_of(edge: "pb.Edge.ValueType", field: str, default: str = READ_START) -> str:
    """Return the requested end of the log, or the default.

    Raises INVALID_SETTING for a value that this version does not know.
    """
    if edge == pb.EDGE_UNSPECIFIED:
        return default
    if edge not in _EDGES:
        text = f"{edge} is not a start position (use EDGE_BEGINNING, EDGE_EARLIEST, EDGE_LATEST or EDGE_END)"
        raise invalid_position(field, text)
    return _EDGES[edge]


def offsets_of(rows: Iterable[pb.PartitionOffset], field: str) -> Positions:
    """Return the offsets by partition. Raises INVALID_REQUEST if a partition is repeated."""
    found: Positions = {}
    for row in rows:
        if row.partition in found:
            raise invalid(field, f"partition {row.partition} is repeated")
        found[row.partition] = row.offset
    return found


async def begin(reader: TopicReader, start: pb.Start, partition: int | None, default: str) -> Positions:
    """Return the offset at which a read starts in each partition."""
    kind = start.WhichOneof("position")
    if kind == "timestamp_ms":
        return await reader.begin_at(check_time_ms(start.timestamp_ms, "start"), partition=partition)
    if kind == "offsets":
        positions = offsets_of(start.offsets.offsets, "start")
        if any(offset < 0 or number < 0 for number, offset in positions.items()):
            raise invalid("start", "a partition or an offset is negative")
        if positions:
            return await reader.begin(format_positions(positions, alone=False), partition)
        return await reader.begin(BEGINNING, partition)
    if kind == "offset":
        if start.offset < 0:
            raise invalid("start", f"offset {start.offset} is negative")
        return await reader.begin(str(start.offset), partition)
    return await reader.begin(edge_of(start.edge, "start", default), partition)


def columns_of(topic: str, events: Sequence[pb.Event], columns: pb.EventColumns, events_max: int) -> EventColumns:
    """Return the events to write, as columns.

    Raises INVALID_REQUEST if a request has both events and columns, or too many events.
    """
    if events and columns.values:
        raise invalid("columns", "set either events or columns, not both")
    count = len(events) or len(columns.values)
    if count > events_max:
        raise invalid("events" if events else "columns", f"{count} events (accepted: at most {events_max} per request)")
    return _from_events(topic, list(events), "events[{}]") if events else _from_columns(topic, columns)


def columns_of_event(topic: str, event: pb.Event) -> EventColumns:
    """Return one event to write, as columns.

    Raises INVALID_REQUEST if it has neither or both of value and tombstone.
    """
    return _from_events(topic, [event], "event")


def _from_events(topic: str, rows: list[pb.Event], path: str) -> EventColumns:
    """Convert events to columns. `path` names an event in errors.

    It reads each attribute of all events in one pass, because the cost of a conversion is the attribute access.
    """
    values = [event.value or _null(event, "value") for event in rows]
    tombstones = [event.tombstone for event in rows]
    if None in values or True in tombstones:
        _check_values(values, tombstones, path)
    converted = EventColumns(topic, values)
    keys = [event.key or _null(event, "key") for event in rows]
    if keys.count(None) < len(rows):
        converted.keys = keys
    headers = [event.headers for event in rows]
    if any(headers):
        converted.headers = [
            [(each.name, each.value or _null(each, "value")) for each in row] or None for row in headers
        ]
    if None in values:
        _check_tombstones(values, converted.keys, lambda index: f"{path.format(index)}.key")
    converted.timestamps_ms = _optional_column(rows, "timestamp_ms")
    if converted.timestamps_ms is not None:
        check_write_times(converted.timestamps_ms, lambda index: f"{path.format(index)}.timestamp_ms")
    converted.partitions = _optional_column(rows, "partition")
    converted.hashes = _optional_column(rows, "hash")
    ids = [event.message_id for event in rows]
    if any(ids):
        converted.message_ids = [each or None for each in ids]
    return converted


def _check_values(values: Sequence[bytes | None], tombstones: Sequence[bool], path: str) -> None:
    """Refuse events without a value, which would delete a key by mistake, and tombstones with a value."""
    for row, (value, is_tombstone) in enumerate(zip(values, tombstones, strict=True)):
        if value is None and not is_tombstone:
            raise invalid(f"{path.format(row)}.value", "missing; set `tombstone` to write a null value")
        if value is not None and is_tombstone:
            raise invalid(f"{path.format(row)}.tombstone", "set either `value` or `tombstone`, not both")


def _null(owner: Any, name: str) -> bytes | None:
    """Return empty bytes if the field is present, None if it is absent."""
    return b"" if owner.HasField(name) else None


def _optional_column(events: Sequence[pb.Event], name: Any) -> list[int | None] | None:
    there = [event.HasField(name) for event in events]
    if not any(there):
        return None
    return [getattr(event, name) if is_there else None for event, is_there in zip(events, there, strict=True)]


def _from_columns(topic: str, columns: pb.EventColumns) -> EventColumns:
    values: list[bytes | None] = list(columns.values)
    count = len(values)
    converted = EventColumns(topic, values)
    for name in ("keys", "timestamps_ms", "partitions", "hashes", "message_ids"):
        column = list(getattr(columns, name))
        if column:
            if len(column) != count:
                raise invalid(f"columns.{name}", f"there are {count} values but {len(column)} {name}")
            setattr(converted, name, column)
    if converted.message_ids is not None:
        converted.message_ids = [each or None for each in converted.message_ids]
    _set_null(values, columns.null_values, "null_values")
    if columns.null_keys:
        _set_null(converted.keys or [], columns.null_keys, "null_keys")
    if columns.null_values:
        _check_tombstones(values, converted.keys, lambda _: "columns.null_values")
    if converted.timestamps_ms is not None:
        check_write_times(converted.timestamps_ms, lambda _: "columns.timestamps_ms")
    return converted


def _check_tombstones(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, field_of: Callable[[int], str]
) -> None:
    index = tombstone_without_key(values, keys)
    if index is not None:
        raise missing(field_of(index), TOMBSTONE_WITHOUT_KEY)


def _set_null(column: list[bytes | None], numbers: Iterable[int], name: str) -> None:
    for number in numbers:
        if number >= len(column):
            raise invalid(
                f"columns.{name}", f"{number} is not the index of a message (accepted: 0 to {len(column) - 1})"
            )
        column[number] = None


def to_setting(row: ConfigSetting) -> topics_pb2.Setting:
    """Convert a setting of a topic, a group or a broker."""
    return topics_pb2.Setting(
        name=row.name,
        value=row.value,
        type=row.type,
        source=row.source,
        own=row.is_own,
        read_only=row.is_read_only,
        secret=row.is_secret,
        documentation=row.documentation,
    )
