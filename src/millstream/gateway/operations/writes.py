"""Writes events, in columns or one by one, and reports for each event its offset or its error.

All writes to a member of a cluster share one producer. The gateway adds no task, lock or wait per event. If the caller
gave no message ids, the result has the ids that the producer made. With them a caller can retry a write whose outcome
is unknown: the same events with the same ids are stored once.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from millstream.gateway.failures import FieldError, contradictory, invalid_position
from millstream.gateway.operations.clusters import ClusterMember
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.units import looks_like_seconds
from millstream.sdk.aio.producer import Data
from millstream.sdk.producing.bulk import Receipts
from millstream.sdk.producing.chunk import Receipt
from millstream.sdk.producing.failures import UnstoredError

T = TypeVar("T")

Headers = Mapping[str, Data] | Iterable[tuple[str, Data]]


@dataclass(slots=True)
class EventColumns:
    """Events of one topic as columns of equal length. A column that no event uses is None."""

    topic: str
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[Headers | None] | None = None
    timestamps_ms: list[int | None] | None = None
    partitions: list[int | None] | None = None
    hashes: list[int | None] | None = None
    message_ids: list[str | bytes | None] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(slots=True)
class WriteResult:
    """The outcome of each event, in the caller's order.

    Partition and offset are -1 for the events in `failures`. The offset is also -1 if the broker no longer knows it.
    Message ids are present if they were requested.
    """

    partitions: Sequence[int]
    offsets: Sequence[int]
    message_ids: Sequence[bytes]
    failures: Mapping[int, MillstreamError] = field(default_factory=dict)
    duplicates: Sequence[int] = ()
    """The indexes of the events whose id was stored before. Their offsets are those of the first copies."""

    @property
    def stored(self) -> int:
        """Number of events that were stored."""
        return len(self.partitions) - len(self.failures)


def tombstone_without_key(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None) -> int | None:
    """Return the index of the first null value without a key, or None."""
    for index, value in enumerate(values):
        if value is None and (keys is None or keys[index] is None):
            return index
    return None


def check_write_times(times_ms: Sequence[int | None], field_of: Callable[[int], str]) -> None:
    """Raise INVALID_SETTING for a time that looks like seconds; `field_of` names the field of the event at an index."""
    for index, time_ms in enumerate(times_ms):
        if time_ms is not None and looks_like_seconds(time_ms):
            detail = f"{time_ms} looks like seconds; give milliseconds ({time_ms * 1000})"
            raise invalid_position(field_of(index), detail)


def put(member: ClusterMember, columns: EventColumns) -> Receipts:
    """Start writing events in the background.

    Errors of the whole request are raised: INVALID_REQUEST, INVALID_TOPIC, INVALID_MESSAGE_ID, PRODUCER_FULL.
    """
    _check_partitioning(columns)
    try:
        return member.producer.put_many(
            columns.topic,
            columns.values,
            keys=columns.keys,
            headers=columns.headers,
            timestamps=_times_s(member, columns.timestamps_ms),
            partition=columns.partitions,
            hashes=columns.hashes,
            message_ids=columns.message_ids,
        )
    except (TypeError, ValueError) as error:
        raise FieldError(ErrorCode.INVALID_REQUEST, str(error), "events") from None


async def outcomes_of(receipts: Receipts, timeout_s: float | None = None, *, with_ids: bool = True) -> WriteResult:
    """Wait until the outcome of every event is known, or until the timeout."""
    try:
        async with asyncio.timeout(timeout_s):
            places = await receipts
    except (UnstoredError, TimeoutError):
        return _outcomes(receipts)
    message_ids = places.message_ids if with_ids else ()
    return WriteResult(places.partitions, places.offsets, message_ids, duplicates=_set_rows(places.duplicates))


async def write(
    member: ClusterMember, columns: EventColumns, timeout_s: float | None = None, *, with_ids: bool = True
) -> WriteResult:
    """Store events and wait until the outcome of each is known, or until the timeout. Raises what `put` raises."""
    if not columns.values:
        return WriteResult((), (), ())
    return await outcomes_of(put(member, columns), timeout_s, with_ids=with_ids)


async def write_one(member: ClusterMember, columns: EventColumns, timeout_s: float | None = None) -> WriteResult:
    """Store one event, as `write` does. Concurrent single writes are sent in one batch."""
    _check_partitioning(columns)
    try:
        receipt = member.producer.put(
            columns.topic,
            columns.values[0],
            _first(columns.keys),
            headers=_first(columns.headers),
            timestamp=_first(_times_s(member, columns.timestamps_ms)),
            partition=_first(columns.partitions),
            hash=_first(columns.hashes),
            message_id=_first(columns.message_ids),
        )
    except (TypeError, ValueError) as error:
        raise FieldError(ErrorCode.INVALID_REQUEST, str(error), "value") from None
    try:
        async with asyncio.timeout(timeout_s):
            await receipt
    except (MillstreamError, TimeoutError):
        pass
    return _outcomes([receipt])


def _check_partitioning(columns: EventColumns) -> None:
    if columns.partitions is not None and columns.hashes is not None:
        for partition, hash_ in zip(columns.partitions, columns.hashes, strict=False):
            if partition is not None and hash_ is not None:
                raise contradictory("hash", "set either `partition` or `hash`, not both")


def _first(column: Sequence[T] | None) -> T | None:
    return None if column is None else column[0]


def _times_s(member: ClusterMember, times_ms: Sequence[int | None] | None) -> list[float] | None:
    if times_ms is None:
        return None
    now_ms = member.clock.wall_ms()
    return [(now_ms if each is None else each) / 1000 for each in times_ms]


def _outcomes(receipts: Iterable[Receipt]) -> WriteResult:
    partitions: list[int] = []
    offsets: list[int] = []
    ids: list[bytes] = []
    failures: dict[int, MillstreamError] = {}
    duplicates: list[int] = []
    for row, receipt in enumerate(receipts):
        ids.append(receipt.message_id)
        partition = offset = -1
        if not receipt.done():
            text = f"the write to topic {receipt.topic!r} was not acknowledged in time; it may or may not be stored"
            failures[row] = MillstreamError(ErrorCode.REQUEST_TIMED_OUT, text)
        else:
            try:
                place = receipt.result(0)
                partition, offset = place.partition, place.offset
                if place.duplicate:
                    duplicates.append(row)
            except MillstreamError as error:
                failures[row] = error
        partitions.append(partition)
        offsets.append(offset)
    return WriteResult(partitions, offsets, ids, failures, duplicates)


def _set_rows(flags: Sequence[bool]) -> list[int]:
    """Return the indexes of the flags that are set, which are few."""
    return [row for row, is_set in enumerate(flags) if is_set] if True in flags else []
