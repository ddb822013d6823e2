"""Fetch sessions: a broker remembers what a reader polls for, and a poll names only what has changed since the last.

So a poll of a thousand partitions, of which one has moved, is as small as a poll of one. Brokers that keep no sessions,
or no more of them, are told everything each time. Invariants:

- `_asked` is what the broker remembers under `_id`, or empty where nobody knows: from the moment a poll is sent until
  it is answered. A poll that finds it empty names everything, and a new session takes the place of the old one.
- One poll of a session is under way at a time. Who polls meanwhile does so without a session.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.requests import FETCH, FETCH_BY_ID
from millstream.sdk.responses import FetchedBatches, refusal
from millstream.wire.client_connection import ApiRequest
from millstream.wire.fetch import SESSIONS_FROM, TOPIC_IDS_FROM, FetchPartition
from millstream.wire.fetch_client import FetchResponse, parse_fetch_response, write_fetch_request
from millstream.wire.framing import Buffer
from millstream.wire.topic_ref import TopicRef

SESSION_PARTITIONS_MIN = 16
"""With fewer, a session saves next to nothing, and brokers keep a limited number."""

NO_SESSION = 0
_WITHOUT = -1
_FIRST = 0
_EPOCH_MAX = 2**31 - 1
_FAREWELL_S = 5.0
_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)

Found = dict[TopicPartition, FetchedBatches | MillstreamError]


@dataclass(frozen=True, slots=True)
class Poll:
    """What is asked of one leader: each partition from its offset on. It waits while none of them has anything.

    From a broker that knows ids, and where all topics have one, what is asked for is the topic of that id and no other.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: dict[str, UUID]
    max_bytes: int
    partition_bytes: int
    max_wait_ms: int
    machine: str = ""
    """For who takes places of files for what is in them."""


class _Step(NamedTuple):
    """What one request says of its session, and of partitions: those that are named, and those to be forgotten."""

    session_id: int
    epoch: int
    named: Mapping[TopicPartition, int]
    forgotten: Sequence[TopicPartition] = ()
    forgotten_ids: Mapping[str, UUID] = {}


class FetchSession:
    """What one broker remembers of one reader."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = _FIRST
        self._asked: Mapping[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._partition_bytes = 0
        self._is_polling = False

    async def poll(self, poll: Poll, connection: BrokerConnection, timeout_s: float) -> Found:
        """What there is, or why not, of partitions that have something new; raises as `connection.request` does."""
        if self._is_polling or len(poll.offsets) < SESSION_PARTITIONS_MIN:
            return await connection.request(without_session(poll), timeout_s)
        self._is_polling = True
        try:
            return await self._go_on(poll, connection, timeout_s)
        except MillstreamError as error:
            if error.code not in _LOST:
                raise
            return await self._go_on(poll, connection, timeout_s)
        finally:
            self._is_polling = False

    def end(self, connection: BrokerConnection) -> None:
        """Have the broker forget it, without waiting: one that does not hear of it forgets it in time."""
        if self._id != NO_SESSION:
            farewell = Poll({}, self._topic_ids, max_bytes=1, partition_bytes=1, max_wait_ms=0)
            step = _Step(self._id, _WITHOUT, {})
            connection.post(_request(farewell, step), _FAREWELL_S).add_done_callback(_seen)
            self._id = NO_SESSION

    async def _go_on(self, poll: Poll, connection: BrokerConnection, timeout_s: float) -> Found:
        step = self._step(poll)
        self._asked = {}
        session_id, found = await connection.request(_request(poll, step), timeout_s)
        if session_id != NO_SESSION:
            self._asked = poll.offsets
            self._topic_ids = poll.topic_ids
            self._partition_bytes = poll.partition_bytes
            self._epoch = step.epoch % _EPOCH_MAX + 1
        self._id = session_id
        return found

    def _step(self, poll: Poll) -> _Step:
        asked, offsets, ids = self._asked, poll.offsets, self._topic_ids
        if not asked or poll.partition_bytes != self._partition_bytes or ids | poll.topic_ids != poll.topic_ids | ids:
            return _Step(self._id, _FIRST, offsets)
        named = {where: offset for where, offset in offsets.items() if asked.get(where) != offset}
        return _Step(self._id, self._epoch, named, sorted(asked.keys() - offsets.keys()), ids)


def _seen(answer: "asyncio.Future[Any]") -> None:
    """Nobody waits for it, whatever it is."""
    if not answer.cancelled():
        answer.exception()


def without_session(poll: Poll) -> ApiRequest[Found]:
    """A poll of which the broker keeps nothing."""
    request = _request(poll, _Step(NO_SESSION, _WITHOUT, poll.offsets))

    def decode(version: int, frame: memoryview, start: int) -> Found | MillstreamError:
        answer = request.decode(version, frame, start)
        return answer if isinstance(answer, MillstreamError) else answer[1]

    return ApiRequest(request.api, request.encode, decode)


def _request(poll: Poll, step: _Step) -> ApiRequest[tuple[int, Found]]:
    """A poll, as a step of a session; the answer has the session's id, and what was found."""
    names = {topic_id: name for name, topic_id in poll.topic_ids.items()}
    has_ids = poll.topic_ids.keys() >= {topic for topic, _ in poll.offsets}

    def encode(version: int) -> list[Buffer]:
        ids = poll.topic_ids if version >= TOPIC_IDS_FROM else {}
        old_ids = step.forgotten_ids if version >= TOPIC_IDS_FROM else {}
        # Where there are no sessions there is nothing to go on with.
        named = step.named if version >= SESSIONS_FROM else poll.offsets
        body = write_fetch_request(
            version,
            _wants(named, ids, poll.partition_bytes),
            max_wait_ms=poll.max_wait_ms,
            max_bytes=poll.max_bytes,
            session_id=step.session_id,
            session_epoch=step.epoch,
            forgotten=_numbers(step.forgotten, old_ids),
            machine=poll.machine,
        )
        return [body]

    def decode(version: int, frame: memoryview, start: int) -> tuple[int, Found] | MillstreamError:
        answer = parse_fetch_response(version, frame, start)
        if answer.error:
            return refusal(answer.error, "reading")
        return answer.session_id, _found(answer, names, poll.offsets)

    return ApiRequest(FETCH_BY_ID if has_ids else FETCH, encode, decode)


def _wants(
    named: Mapping[TopicPartition, int], ids: Mapping[str, UUID], partition_bytes: int
) -> list[tuple[TopicRef, list[FetchPartition]]]:
    rows: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in named.items():
        rows.setdefault(topic, []).append(FetchPartition(partition, offset, partition_bytes))
    return [(ids.get(topic, topic), wants) for topic, wants in rows.items()]


def _numbers(places: Iterable[TopicPartition], ids: Mapping[str, UUID]) -> list[tuple[TopicRef, list[int]]]:
    rows: dict[str, list[int]] = {}
    for topic, partition in places:
        rows.setdefault(topic, []).append(partition)
    return [(ids.get(topic, topic), numbers) for topic, numbers in rows.items()]


def _found(answer: FetchResponse, names: Mapping[UUID, str], offsets: Mapping[TopicPartition, int]) -> Found:
    found: Found = {}
    for topic, rows in answer.topics:
        name = topic if isinstance(topic, str) else names.get(topic, "")
        for row in rows:
            where = TopicPartition(name, row.partition)
            if where not in offsets:
                raise ValueError("the answer is about other partitions")
            if row.error:
                found[where] = refusal(row.error, f"reading {where} at offset {offsets[where]}")
            elif row.place is not None and row.next_offset <= offsets[where]:
                raise ValueError("the answer leads back")
            else:
                batches = memoryview(cast(Buffer, row.records))
                found[where] = FetchedBatches(
                    row.high_watermark, row.log_start_offset, batches, row.place, row.next_offset
                )
    return found
