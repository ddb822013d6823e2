"""Messages and places, as the contract says them and as the gateway has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millstream.gateway.failures import invalid
from millstream.gateway.grpc.v1 import events_pb2 as pb
from millstream.gateway.grpc.v1 import topics_pb2
from millstream.gateway.operations.reads import BEGINNING, LATEST, OFFSET_MAX, Positions, TopicReader, place_text
from millstream.gateway.operations.writes import EventColumns
from millstream.model.message_id import ID_HEADER
from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.admin.admin_results import ConfigSetting

_EDGES = {pb.EDGE_BEGINNING: BEGINNING, pb.EDGE_LATEST: LATEST}


def messages_told(messages: Iterable[Message]) -> list[pb.Message]:
    """As they are read; a message's id is beside its headers, not among them."""
    told = []
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
        told.append(one)
    return told


def positions_told(positions: Mapping[int, int]) -> pb.PartitionOffsets:
    rows = [pb.PartitionOffset(partition=number, offset=offset) for number, offset in sorted(positions.items())]
    return pb.PartitionOffsets(offsets=rows)


def places_told(offsets: Mapping[TopicPartition, int]) -> list[pb.TopicPartitionOffset]:
    return [
        pb.TopicPartitionOffset(topic=where.topic, partition=where.partition, offset=offset)
        for where, offset in sorted(offsets.items())
    ]


def partitions_told(places: Iterable[TopicPartition]) -> list[pb.TopicPartition]:
    return [pb.TopicPartition(topic=where.topic, partition=where.partition) for where in places]


def places_of(rows: Iterable[pb.TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(row.topic, row.partition) for row in rows]


def edge_of(edge: "pb.Edge.ValueType", field: str, otherwise: str = BEGINNING) -> str:
    """Which end is meant; INVALID_REQUEST for one that this version does not know."""
    if edge == pb.EDGE_UNSPECIFIED:
        return otherwise
    if edge not in _EDGES:
        raise invalid(field, f"there is no edge {edge}")
    return _EDGES[edge]


def offsets_of(rows: Iterable[pb.PartitionOffset], field: str) -> Positions:
    """An offset for each partition; INVALID_REQUEST for one that is named twice."""
    found: Positions = {}
    for row in rows:
        if row.partition in found:
            raise invalid(field, f"partition {row.partition} is there twice")
        found[row.partition] = row.offset
    return found


async def begin(reader: TopicReader, start: pb.Start, partition: int | None, otherwise: str) -> Positions:
    """The positions that a start means."""
    kind = start.WhichOneof("place")
    if kind == "timestamp_ms":
        if not 0 <= start.timestamp_ms <= OFFSET_MAX:
            raise invalid("start", f"there is no time {start.timestamp_ms}")
        return await reader.begin_at(start.timestamp_ms, partition)
    if kind == "offsets":
        positions = offsets_of(start.offsets.offsets, "start")
        if any(offset < 0 or number < 0 for number, offset in positions.items()):
            raise invalid("start", "partitions and offsets are not negative")
        if positions:
            return await reader.begin(place_text(positions, alone=False), partition)
        return await reader.begin(BEGINNING, partition)
    if kind == "offset":
        if start.offset < 0:
            raise invalid("start", f"offset {start.offset} is negative")
        return await reader.begin(str(start.offset), partition)
    return await reader.begin(edge_of(start.edge, "start", otherwise), partition)


def columns_of(topic: str, events: Sequence[pb.Event], columns: pb.EventColumns, events_max: int) -> EventColumns:
    """What is to be written, however it was said; INVALID_REQUEST for both ways at once, and for too much."""
    if events and columns.values:
        raise invalid("columns", "give events or columns, not both")
    count = len(events) or len(columns.values)
    if count > events_max:
        raise invalid("events" if events else "columns", f"{count} are more than {events_max} at a time")
    return _from_events(topic, events) if events else _from_columns(topic, columns)


def _from_events(topic: str, events: Sequence[pb.Event]) -> EventColumns:
    """One question to each event for each attribute, however many events have it: these questions are what it costs."""
    rows = list(events)
    made = EventColumns(topic, [event.value or _null(event, "value") for event in rows])
    keys = [event.key or _null(event, "key") for event in rows]
    if keys.count(None) < len(rows):
        made.keys = keys
    headers = [event.headers for event in rows]
    if any(headers):
        made.headers = [[(each.name, each.value or _null(each, "value")) for each in row] or None for row in headers]
    made.timestamps_ms = _given(rows, "timestamp_ms")
    made.partitions = _given(rows, "partition")
    made.hashes = _given(rows, "hash")
    ids = [event.message_id for event in rows]
    if any(ids):
        made.message_ids = [each or None for each in ids]
    return made


def _null(owner: Any, name: str) -> bytes | None:
    """What is empty may be there all the same."""
    return b"" if owner.HasField(name) else None


def _given(events: Sequence[pb.Event], name: Any) -> list[int | None] | None:
    there = [event.HasField(name) for event in events]
    if not any(there):
        return None
    return [getattr(event, name) if is_there else None for event, is_there in zip(events, there, strict=True)]


def _from_columns(topic: str, columns: pb.EventColumns) -> EventColumns:
    values: list[bytes | None] = list(columns.values)
    count = len(values)
    made = EventColumns(topic, values)
    for name in ("keys", "timestamps_ms", "partitions", "hashes", "message_ids"):
        column = list(getattr(columns, name))
        if column:
            if len(column) != count:
                raise invalid(f"columns.{name}", f"there are {count} values but {len(column)} {name}")
            setattr(made, name, column)
    if made.message_ids is not None:
        made.message_ids = [each or None for each in made.message_ids]
    _set_null(values, columns.null_values, "null_values")
    if columns.null_keys:
        _set_null(made.keys or [], columns.null_keys, "null_keys")
    return made


def _set_null(column: list[bytes | None], numbers: Iterable[int], name: str) -> None:
    for number in numbers:
        if number >= len(column):
            raise invalid(f"columns.{name}", f"there is no message {number}")
        column[number] = None


def setting_told(row: ConfigSetting) -> topics_pb2.Setting:
    """A setting of a topic, a group or a broker."""
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
