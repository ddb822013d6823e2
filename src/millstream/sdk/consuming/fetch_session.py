"""Implements the client side of a fetch session (KIP-227): a fetch request names only what changed since the last one.

The broker remembers the other partitions, so a fetch of a thousand partitions of which one moved is as small as a fetch
of one. If the broker supports no sessions or has none left, each request names every partition. Invariants:

- `_asked` holds the positions that the broker remembers under `_id`. It is empty when these are unknown, which is from
  sending a request until its answer. A request that finds it empty names every partition and starts a new session.
- One request of a session is in flight at a time. A concurrent request does not use the session.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import TopicPartition
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.feed.partition_feed import FeedPosition
from millstream.sdk.requests import FETCH, FETCH_BY_ID, fetch_refusal
from millstream.sdk.responses import FetchedBatches, refusal
from millstream.wire.client_connection import ApiRequest
from millstream.wire.fetch import SESSIONS_FROM, TOPIC_IDS_FROM, FetchPartition
from millstream.wire.fetch_client import FetchResponse, parse_fetch_response, write_fetch_request
from millstream.wire.framing import Buffer
from millstream.wire.topic_ref import TopicRef

SESSION_PARTITIONS_MIN = 16
"""The fewest partitions for which a session is used. With fewer it saves little, and brokers limit their sessions."""

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
    """One long poll of a leader: fetches each partition from its position, and waits while none of them has messages.

    If the broker supports topic ids and every topic has one, the request names topics by id.
    """

    positions: Mapping[TopicPartition, FeedPosition]
    topic_ids: dict[str, TopicId]
    max_bytes: int
    partition_bytes: int
    max_wait_ms: int
    machine: str = ""
    """The machine id of a client that accepts file positions instead of batches (local file reads); otherwise empty."""


class _Step(NamedTuple):
    """The session fields of one request: session id, epoch, partitions to fetch and partitions to forget."""

    session_id: int
    epoch: int
    named: Mapping[TopicPartition, FeedPosition]
    forgotten: Sequence[TopicPartition] = ()
    forgotten_ids: Mapping[str, TopicId] = {}


class FetchSession:
    """The fetch session of one reader with one broker."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = _FIRST
        self._asked: Mapping[TopicPartition, FeedPosition] = {}
        self._topic_ids: dict[str, TopicId] = {}
        self._partition_bytes = 0
        self._is_polling = False

    async def poll(self, poll: Poll, connection: BrokerConnection, timeout_s: float) -> Found:
        """Return batches or an error for each partition that has either; raises like `connection.request`."""
        if self._is_polling or len(poll.positions) < SESSION_PARTITIONS_MIN:
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
        """Ask the broker to close the session, without waiting. If the request is lost, the broker evicts it later."""
        if self._id != NO_SESSION:
            farewell = Poll({}, self._topic_ids, max_bytes=1, partition_bytes=1, max_wait_ms=0)
            step = _Step(self._id, _WITHOUT, {})
            connection.post(_request(farewell, step), _FAREWELL_S).add_done_callback(_seen)
            self._id = NO_SESSION
            self._asked = {}

    async def _go_on(self, poll: Poll, connection: BrokerConnection, timeout_s: float) -> Found:
        assert self._is_polling, "one poll of a session is under way at a time"
        step = self._step(poll)
        self._asked = {}
        session_id, found = await connection.request(_request(poll, step), timeout_s)
        if session_id != NO_SESSION:
            self._asked = poll.positions
            self._topic_ids = poll.topic_ids
            self._partition_bytes = poll.partition_bytes
            self._epoch = step.epoch % _EPOCH_MAX + 1
        self._id = session_id
        return found

    def _step(self, poll: Poll) -> _Step:
        asked, positions, ids = self._asked, poll.positions, self._topic_ids
        assert not asked or self._id != NO_SESSION, "what the broker remembers has a session"
        if not asked or poll.partition_bytes != self._partition_bytes or ids | poll.topic_ids != poll.topic_ids | ids:
            return _Step(self._id, _FIRST, positions)
        named = {where: position for where, position in positions.items() if asked.get(where) != position}
        return _Step(self._id, self._epoch, named, sorted(asked.keys() - positions.keys()), ids)


def _seen(answer: "asyncio.Future[Any]") -> None:
    """Retrieve the response's exception, so that asyncio does not log it as never retrieved."""
    if not answer.cancelled():
        answer.exception()


def without_session(poll: Poll) -> ApiRequest[Found]:
    """Build a fetch request that uses no session."""
    request = _request(poll, _Step(NO_SESSION, _WITHOUT, poll.positions))

    def decode(version: int, frame: memoryview, start: int) -> Found | MillstreamError:
        answer = request.decode(version, frame, start)
        return answer if isinstance(answer, MillstreamError) else answer[1]

    return ApiRequest(request.api, request.encode, decode, wait_s=request.wait_s)


def _request(poll: Poll, step: _Step) -> ApiRequest[tuple[int, Found]]:
    """Build a fetch request for one step of a session. The response has the session id and the partitions' results."""
    names = {topic_id: name for name, topic_id in poll.topic_ids.items()}
    has_ids = poll.topic_ids.keys() >= {topic for topic, _ in poll.positions}

    def encode(version: int) -> list[Buffer]:
        ids = poll.topic_ids if version >= TOPIC_IDS_FROM else {}
        old_ids = step.forgotten_ids if version >= TOPIC_IDS_FROM else {}
        # Older versions have no sessions, so the request must name every partition.
        named = step.named if version >= SESSIONS_FROM else poll.positions
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
        return answer.session_id, _found(answer, names, poll.positions)

    return ApiRequest(FETCH_BY_ID if has_ids else FETCH, encode, decode, wait_s=poll.max_wait_ms / 1000)


def _wants(
    named: Mapping[TopicPartition, FeedPosition], ids: Mapping[str, TopicId], partition_bytes: int
) -> list[tuple[TopicRef, list[FetchPartition]]]:
    rows: dict[str, list[FetchPartition]] = {}
    for (topic, partition), (offset, epoch) in named.items():
        rows.setdefault(topic, []).append(FetchPartition(partition, offset, partition_bytes, epoch))
    return [(ids.get(topic, topic), wants) for topic, wants in rows.items()]


def _numbers(places: Iterable[TopicPartition], ids: Mapping[str, TopicId]) -> list[tuple[TopicRef, list[int]]]:
    rows: dict[str, list[int]] = {}
    for topic, partition in places:
        rows.setdefault(topic, []).append(partition)
    return [(ids.get(topic, topic), numbers) for topic, numbers in rows.items()]


def _found(
    answer: FetchResponse, names: Mapping[TopicId, str], positions: Mapping[TopicPartition, FeedPosition]
) -> Found:
    found: Found = {}
    for topic, rows in answer.topics:
        name = topic if isinstance(topic, str) else names.get(topic, "")
        for row in rows:
            where = TopicPartition(name, row.partition)
            if where not in positions:
                raise ValueError(f"the fetch response has {where}, which was not requested")
            offset = positions[where].offset
            if row.error:
                found[where] = fetch_refusal(row, f"reading {where} at offset {offset}")
            elif row.place is not None and row.next_offset <= offset:
                raise ValueError(f"the fetch response for {where} ends at {row.next_offset}, not after {offset}")
            else:
                batches = memoryview(cast(Buffer, row.records))
                found[where] = FetchedBatches(
                    row.high_watermark, row.log_start_offset, batches, row.place, row.next_offset
                )
    return found
