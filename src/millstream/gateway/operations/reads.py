"""Reads messages at offsets that the caller provides, of one partition or a whole topic, with a long poll.

A caller's position is a text: a start word (`beginning`, `latest`), an offset (`12`) if it reads one partition, or an
offset per partition (`0:12,1:40`). Each response has the next position in the same form. The gateway stores no
positions.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from millstream.gateway.failures import invalid, invalid_position
from millstream.gateway.operations.answer_limit import AnswerLimit
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.model.names import TopicPartition
from millstream.model.start_words import ACCEPTED_WORDS, BEGINNING, LATEST, start_word
from millstream.model.units import TIME_MS_MAX, looks_like_seconds, looks_like_time_ms, read_age_ms
from millstream.records.message import Message
from millstream.sdk.responses import TopicView
from millstream.sdk.watching.read_result import ReadResult

OFFSET_MAX = 2**63 - 1

METADATA_REFRESH_S = 15.0
"""How often a live tail checks its topic for new partitions."""

_PLACES = re.compile(r"\d{1,10}:\d{1,19}(,\d{1,10}:\d{1,19})*")
_EXPECTED = f"use {ACCEPTED_WORDS}, an offset such as 12, or an offset per partition such as 0:12,1:40"
_TIMES = "examples: 2025-01-31T12:00:00Z, 1738324800000 in ms, 10m for ten minutes ago"

_TIME_RANGE = f"accepted: 0 to {TIME_MS_MAX} ms since 1970"

Positions = dict[int, int]
"""The next offset to read, by partition."""


class ReadLimits(NamedTuple):
    """Size limits of one answer, and how long to wait for the first message."""

    max_messages: int = 500
    max_bytes: int = 1024 * 1024
    wait_s: float = 5.0
    on_bad_batch: str = "raise"
    """"skip" skips batches that cannot be decoded; "raise" reports them as UNDECODABLE_BATCH."""
    answer: AnswerLimit | None = None
    """Bounds the size of the response; None: `max_bytes` alone does."""

    def cut(self, results: Mapping[TopicPartition, ReadResult]) -> Mapping[TopicPartition, ReadResult]:
        """Cut results to the size of a response. Raises RESPONSE_TOO_LARGE for a message that is too large for any."""
        return results if self.answer is None else self.answer.cut(results)


class ReadMessages(NamedTuple):
    """Messages, and the positions that follow them."""

    messages: list[Message]
    positions: Positions


def format_positions(positions: Mapping[int, int], *, alone: bool) -> str:
    """Format positions as a text: only the offset with `alone`, otherwise `partition:offset` pairs.

    Pairs are also used for a topic with one partition, because partitions may be added later.
    """
    if alone:
        ((partition, offset),) = positions.items()
        return f"{partition}:{offset}" if looks_like_time_ms(offset) else str(offset)
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def parse_time_ms(text: str, now_ms: int, field: str = "time") -> int:
    """Parse milliseconds since 1970, a time such as 2025-01-31T12:00Z, or an age such as 10m, into milliseconds since
    1970.

    A time without a zone is UTC. Raises INVALID_SETTING, naming the field, for any other text.
    """
    try:
        age_ms = read_age_ms(text)
        if text.isascii() and text.isdigit():
            return check_time_ms(int(text), field)
        if age_ms is not None:
            moment_ms = now_ms - age_ms
        else:
            moment = datetime.fromisoformat(text)
            moment_ms = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise invalid_position(field, f"{text[:60]!r} is not a time ({_TIMES})") from None
    if not 0 <= moment_ms <= TIME_MS_MAX:
        raise invalid_position(field, f"{text[:60]!r} is out of range ({_TIME_RANGE})")
    return moment_ms


def check_time_ms(time_ms: int, field: str) -> int:
    """Check a time in milliseconds since 1970. Raises INVALID_SETTING if it is out of range or looks like seconds."""
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise invalid_position(field, f"{time_ms} is out of range ({_TIME_RANGE})")
    if looks_like_seconds(time_ms):
        raise invalid_position(field, f"{time_ms} looks like seconds; give milliseconds ({time_ms * 1000})")
    return time_ms


def check_offset(offset: int, field: str) -> int:
    """Check a single offset. Raises INVALID_SETTING if it looks like a time in milliseconds."""
    if looks_like_time_ms(offset):
        text = f"{offset} looks like a time in milliseconds; give it as a time, or give an offset per partition"
        raise invalid_position(field, text)
    return offset


def parse_positions(text: str) -> Positions | int | str:
    """Parse `offset`: an offset per partition, one offset, BEGINNING or LATEST.

    Raises INVALID_SETTING for any other text.
    """
    word = start_word(text)
    if word is not None:
        return word
    if text.isascii() and text.isdigit() and int(text) <= OFFSET_MAX:
        return check_offset(int(text), "offset")
    if len(text) > 1_000_000 or not _PLACES.fullmatch(text):
        raise invalid_position("offset", f"{text[:60]!r} is not a start position ({_EXPECTED})")
    found: Positions = {}
    for each in text.split(","):
        partition, _, offset = each.partition(":")
        if int(partition) in found or int(offset) > OFFSET_MAX:
            raise invalid("offset", f"{each!r} names a partition twice, or its offset exceeds {OFFSET_MAX}")
        found[int(partition)] = int(offset)
    return found


def group_start(text: str, field: str) -> str:
    """Return BEGINNING or LATEST for the start of a group.

    Raises INVALID_SETTING, naming the field, for any other text.
    """
    word = start_word(text)
    if word is None:
        why = f"{text[:60]!r} is not the start position of a group, which keeps its own offsets (use {ACCEPTED_WORDS})"
        raise invalid_position(field, why)
    return word


class TopicReader:
    """Reads one topic of a cluster for one request or one stream."""

    def __init__(self, member: ClusterMember, view: TopicView) -> None:
        self._member = member
        self._client = member.client
        self._view = view
        self._refreshed_s = member.clock.monotonic_s()

    @classmethod
    async def open(cls, cluster: ServedCluster, topic: str) -> "TopicReader":
        """Look up the topic. Raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        member = await cluster.home(topic)
        return cls(member, await member.client.describe_topic(topic, timeout=cluster.timeout_s))

    def _numbers(self, partition: int | None) -> list[int]:
        return [row.number for row in self._view.partitions] if partition is None else [partition]

    async def begin(self, text: str, partition: int | None = None) -> Positions:
        """Resolve a caller's position to offsets of all partitions, or of the requested one.

        Partitions that the position does not name were added later and are read from their beginning. Raises
        INVALID_REQUEST if the position does not fit this topic.
        """
        numbers = self._numbers(partition)
        places = parse_positions(text)
        if isinstance(places, str):
            return await self._edges(numbers, places)
        if isinstance(places, int):
            if len(numbers) > 1:
                why = f"topic {self._view.name!r} has {len(numbers)} partitions; name one with `partition`"
                raise invalid("offset", f"{why}, or give an offset per partition such as 0:{places},1:{places}")
            return {numbers[0]: places}
        unknown = sorted(places.keys() - set(numbers))
        if unknown:
            why = f"topic {self._view.name!r} has no partition {unknown[0]}, or `partition` selects another one"
            raise invalid("offset", why)
        new = [number for number in numbers if number not in places]
        return {**places, **(await self._edges(new, BEGINNING) if new else {})}

    async def _edges(self, numbers: list[int], mark: str) -> Positions:
        places = {TopicPartition(self._view.name, number): mark for number in numbers}
        found = await self._client.offsets(places, timeout=self._member.timeout_s)
        return {where.partition: listed.offset for where, listed in found.items()}

    async def begin_at(self, time_ms: int, *, partition: int | None = None) -> Positions:
        """Return the offset of the first message at or after a time, for each partition.

        A partition without such a message gets its log end.
        """
        places = {TopicPartition(self._view.name, number): time_ms / 1000 for number in self._numbers(partition)}
        found = await self._client.offsets(places, timeout=self._member.timeout_s)
        positions = {where.partition: listed.offset for where, listed in found.items()}
        late = [number for number, offset in positions.items() if offset < 0]
        return {**positions, **(await self._edges(late, LATEST) if late else {})}

    async def read(self, positions: Positions, limits: ReadLimits) -> ReadMessages:
        """Read messages from these positions. Waits for the first message if there is none.

        A position after the log end waits too. Raises OFFSET_OUT_OF_RANGE if the messages at a position were removed,
        and UNDECODABLE_BATCH or RESPONSE_TOO_LARGE if the first messages at a position cannot be returned.
        """
        found: Mapping[TopicPartition, ReadResult] = await self._client.read_any(
            {TopicPartition(self._view.name, partition): offset for partition, offset in positions.items()},
            max_messages=limits.max_messages,
            max_bytes=limits.max_bytes,
            on_bad_batch=limits.on_bad_batch,
            wait=limits.wait_s,
            timeout=self._member.timeout_s,
        )
        found = limits.cut(found)
        messages = [message for portion in found.values() for message in portion.messages]
        return ReadMessages(messages, {portion.partition: portion.next_offset for portion in found.values()})

    async def follow(self, positions: Positions, limits: ReadLimits) -> ReadMessages:
        """Read as `read` does, for a tail of all partitions that runs on.

        Partitions that are added meanwhile are read from their beginning, at most METADATA_REFRESH_S later.
        """
        if self._member.clock.monotonic_s() - self._refreshed_s >= METADATA_REFRESH_S:
            self._view = await self._client.describe_topic(self._view.name, timeout=self._member.timeout_s)
            self._refreshed_s = self._member.clock.monotonic_s()
            new = [number for number in self._numbers(None) if number not in positions]
            positions = {**positions, **(await self._edges(new, BEGINNING) if new else {})}
        return await self.read(positions, limits._replace(wait_s=min(limits.wait_s, METADATA_REFRESH_S)))
