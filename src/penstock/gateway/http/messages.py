"""Places in a topic, and the removal of its oldest messages."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.gateway.failures import invalid
from penstock.gateway.http.asked import Asked
from penstock.gateway.http.named import OfTopic, Partition
from penstock.gateway.reading import TopicReader, parse_time_ms, place_text
from penstock.model.names import TopicPartition


class OffsetsAt(OfTopic, kw_only=True):
    """Which places are wanted."""

    at: Annotated[
        str | int,
        Meta(description="`beginning`, `latest`, or a time: `2025-01-31T12:00:00Z`, milliseconds, or `10m` ago."),
    ] = "latest"
    partition: Partition | None = None


class ShownPlaces(msgspec.Struct, kw_only=True):
    """`offset` has them in one text, as `GET /events` takes it."""

    topic: str
    offset: str
    partitions: dict[str, int]


class Removal(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Up to where messages go: the first offset that stays, by partition; -1 for all that are there now."""

    before: Annotated[dict[str, Annotated[int, Meta(ge=-1, le=2**63 - 1)]], Meta(min_length=1, max_length=10_000)]


class Beginnings(msgspec.Struct, kw_only=True):
    """Where each partition begins now."""

    topic: str
    first_offsets: dict[str, int]


async def get_offsets(asked: Asked) -> ShownPlaces:
    """Where partitions begin or end, or where their first message at or after a time is."""
    parameters: OffsetsAt = asked.parameters
    reader = await TopicReader.open(asked.site.clusters.get(parameters.cluster), parameters.topic)
    if parameters.at in ("beginning", "latest"):
        positions = await reader.begin(str(parameters.at), parameters.partition)
    else:
        time_ms = parse_time_ms(str(parameters.at), asked.site.clock.wall_ms(), "at")
        positions = await reader.begin_at(time_ms, parameters.partition)
    return ShownPlaces(
        topic=parameters.topic,
        offset=place_text(positions, alone=parameters.partition is not None),
        partitions={str(partition): offset for partition, offset in sorted(positions.items())},
    )


async def delete_messages(asked: Asked) -> Beginnings:
    """Remove a topic's oldest messages for good."""
    parameters: OfTopic = asked.parameters
    removal: Removal = asked.body
    member = await asked.site.clusters.get(parameters.cluster).home(parameters.topic)
    places: dict[TopicPartition, int] = {}
    for text, offset in removal.before.items():
        if not (text.isascii() and text.isdigit() and int(text) < 2**31):
            raise invalid("before", f"{text[:20]!r} is no partition's number")
        places[TopicPartition(parameters.topic, int(text))] = offset
    found = await member.client.admin.delete_records(places, timeout=member.timeout_s)
    return Beginnings(
        topic=parameters.topic, first_offsets={str(where.partition): offset for where, offset in found.items()}
    )
