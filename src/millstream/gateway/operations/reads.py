"""Reads messages from places that the caller knows: one partition or all of a topic, with a long poll.

A place is a text that the caller keeps: `beginning`, `latest`, an offset (`12`) where there is one partition, or an
offset for each (`0:12,1:40`). Answers have the place to go on from, in the same form. The gateway keeps nothing.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from millstream.gateway.failures import invalid
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.model.names import TopicPartition
from millstream.model.units import read_duration_ms
from millstream.records.message import Message
from millstream.sdk.responses import TopicView

BEGINNING = "beginning"
LATEST = "latest"

OFFSET_MAX = 2**63 - 1

LOOK_S = 15.0
"""How often whoever follows a topic looks whether it has more partitions."""

_PLACES = re.compile(r"\d{1,10}:\d{1,19}(,\d{1,10}:\d{1,19})*")
_EXPECTED = "expected beginning, latest, an offset such as 12, or one for each partition such as 0:12,1:40"

Positions = dict[int, int]
"""The next offset to be read of each partition."""


class ReadLimits(NamedTuple):
    """How much one answer brings, and how long it is waited for the first message."""

    max_messages: int = 500
    max_bytes: int = 1024 * 1024
    wait_s: float = 5.0


class ReadMessages(NamedTuple):
    """Messages, and where to go on."""

    messages: list[Message]
    positions: Positions


def place_text(positions: Mapping[int, int], *, alone: bool) -> str:
    """The place as a text: just the offset where one partition was asked for, otherwise each with its own.

    A topic with a single partition may get more, so that its place names the partition too.
    """
    if alone:
        ((_, offset),) = positions.items()
        return str(offset)
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def parse_time_ms(text: str, now_ms: int, field: str = "time") -> int:
    """Milliseconds since 1970 of such a number, a time such as 2025-01-31T12:00Z, or an age such as 10m.

    INVALID_REQUEST, naming the field, for anything else; a time without a zone is in UTC.
    """
    try:
        if text.isascii() and text.isdigit():
            moment_ms = int(text)
        elif text[:1].isdigit() and text[-1:].isalpha() and "T" not in text:
            moment_ms = now_ms - read_duration_ms(text)
        else:
            moment = datetime.fromisoformat(text)
            moment_ms = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise invalid(field, f"{text!r} is no time; such as 2025-01-31T12:00:00Z, 1738324800000 (ms) or 10m") from None
    if not 0 <= moment_ms <= OFFSET_MAX:
        raise invalid(field, f"{text!r} is not between 1970 and {OFFSET_MAX} ms after")
    return moment_ms


def parse_places(text: str) -> Positions | int | str:
    """What `offset` says: a place for each partition, one number, BEGINNING or LATEST; INVALID_REQUEST otherwise."""
    if text in (BEGINNING, LATEST):
        return text
    if text.isascii() and text.isdigit() and int(text) <= OFFSET_MAX:
        return int(text)
    if len(text) > 1_000_000 or not _PLACES.fullmatch(text):
        raise invalid("offset", f"{text[:60]!r} is no place; {_EXPECTED}")
    found: Positions = {}
    for each in text.split(","):
        partition, _, offset = each.partition(":")
        if int(partition) in found or int(offset) > OFFSET_MAX:
            raise invalid("offset", f"{each!r} names a partition twice, or an offset that there cannot be")
        found[int(partition)] = int(offset)
    return found


class TopicReader:
    """Reads one topic of a cluster, for one caller and one request, or for as long as a stream goes."""

    def __init__(self, member: ClusterMember, view: TopicView) -> None:
        self._member = member
        self._client = member.client
        self._view = view
        self._looked_s = member.clock.monotonic_s()

    @classmethod
    async def open(cls, cluster: ServedCluster, topic: str) -> "TopicReader":
        """UNKNOWN_TOPIC_OR_PARTITION when there is no such topic."""
        member = await cluster.home(topic)
        return cls(member, await member.client.describe_topic(topic, timeout=cluster.timeout_s))

    def _numbers(self, partition: int | None) -> list[int]:
        return [row.number for row in self._view.partitions] if partition is None else [partition]

    async def begin(self, text: str, partition: int | None = None) -> Positions:
        """The positions that a caller's place means, of all partitions or of the one that is asked for.

        Partitions that the place does not name, since they were added later, are read from their beginning.
        INVALID_REQUEST for a place that cannot be one of this topic.
        """
        numbers = self._numbers(partition)
        places = parse_places(text)
        if isinstance(places, str):
            return await self._marks(numbers, places)
        if isinstance(places, int):
            if len(numbers) > 1:
                why = f"topic {self._view.name!r} has {len(numbers)} partitions; name one with `partition`"
                raise invalid("offset", f"{why}, or give a place for each, such as 0:{places},1:{places}")
            return {numbers[0]: places}
        unknown = sorted(places.keys() - set(numbers))
        if unknown:
            raise invalid("offset", f"topic {self._view.name!r} has no partition {unknown[0]}, or it is not asked for")
        new = [number for number in numbers if number not in places]
        return {**places, **(await self._marks(new, BEGINNING) if new else {})}

    async def _marks(self, numbers: list[int], mark: str) -> Positions:
        places = {TopicPartition(self._view.name, number): mark for number in numbers}
        found = await self._client.offsets(places, timeout=self._member.timeout_s)
        return {where.partition: listed.offset for where, listed in found.items()}

    async def begin_at(self, time_ms: int, partition: int | None = None) -> Positions:
        """The positions of the first messages at or after a time; of the end where none is that late."""
        places = {TopicPartition(self._view.name, number): time_ms / 1000 for number in self._numbers(partition)}
        found = await self._client.offsets(places, timeout=self._member.timeout_s)
        positions = {where.partition: listed.offset for where, listed in found.items()}
        late = [number for number, offset in positions.items() if offset < 0]
        return {**positions, **(await self._marks(late, LATEST) if late else {})}

    async def read(self, positions: Positions, limits: ReadLimits) -> ReadMessages:
        """Messages from these positions on; with nothing there, it is waited for the first.

        A position beyond the end waits likewise. OFFSET_OUT_OF_RANGE for one whose messages are gone.
        """
        found = await self._client.read_any(
            {TopicPartition(self._view.name, partition): offset for partition, offset in positions.items()},
            max_messages=limits.max_messages,
            max_bytes=limits.max_bytes,
            wait=limits.wait_s,
            timeout=self._member.timeout_s,
        )
        messages = [message for portion in found.values() for message in portion.messages]
        return ReadMessages(messages, {portion.partition: portion.next_offset for portion in found.values()})

    async def follow(self, positions: Positions, limits: ReadLimits) -> ReadMessages:
        """As `read`, for who goes on for ever with all partitions: those that are added meanwhile are read too, from
        their beginning, `LOOK_S` later at most."""
        if self._member.clock.monotonic_s() - self._looked_s >= LOOK_S:
            self._view = await self._client.describe_topic(self._view.name, timeout=self._member.timeout_s)
            self._looked_s = self._member.clock.monotonic_s()
            new = [number for number in self._numbers(None) if number not in positions]
            positions = {**positions, **(await self._marks(new, BEGINNING) if new else {})}
        return await self.read(positions, limits._replace(wait_s=min(limits.wait_s, LOOK_S)))
