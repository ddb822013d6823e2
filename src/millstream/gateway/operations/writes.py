"""Writes events: whole columns at once, or one by one, and tells of each where it was stored or why not.

All writes of a cluster's member share one producer. Nothing is done per event but what the SDK does: no task, no lock,
no wait. Whoever gave no message ids is told those that were made, so that a write in doubt can be settled: the same
events with the same ids are stored once.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from millstream.gateway.failures import FieldError
from millstream.gateway.operations.clusters import ClusterMember
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.aio.producer import Data
from millstream.sdk.producing.bulk import Receipts
from millstream.sdk.producing.chunk import Receipt
from millstream.sdk.producing.failures import UnstoredError

T = TypeVar("T")

Headers = Mapping[str, Data] | Iterable[tuple[str, Data]]


@dataclass(slots=True)
class EventColumns:
    """Events of one topic; a column that no event needs is None, and all others are of the same length."""

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
    """What became of events, in the order in which they were given.

    Partition and offset are -1 where an event is among the `failures`; the offset also where the broker cannot say.
    Ids are there if they were asked for.
    """

    partitions: Sequence[int]
    offsets: Sequence[int]
    message_ids: Sequence[bytes]
    failures: Mapping[int, MillstreamError] = field(default_factory=dict)

    @property
    def stored(self) -> int:
        """How many were."""
        return len(self.partitions) - len(self.failures)


def put(member: ClusterMember, columns: EventColumns) -> Receipts:
    """Have events written in the background.

    What is wrong with the request as such is raised: INVALID_REQUEST, INVALID_TOPIC, INVALID_MESSAGE_ID, PRODUCER_FULL.
    """
    _check_places(columns)
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


async def written(receipts: Receipts, timeout_s: float | None = None, *, with_ids: bool = True) -> WriteResult:
    """What became of events, once the fate of all of them is known, or the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            places = await receipts
    except (UnstoredError, TimeoutError):
        return _told(receipts)
    return WriteResult(places.partitions, places.offsets, places.message_ids if with_ids else ())


async def write(
    member: ClusterMember, columns: EventColumns, timeout_s: float | None = None, *, with_ids: bool = True
) -> WriteResult:
    """Store events; come back when the fate of all of them is known, or the time is over. Raises what `put` does."""
    if not columns.values:
        return WriteResult((), (), ())
    return await written(put(member, columns), timeout_s, with_ids=with_ids)


async def write_one(member: ClusterMember, columns: EventColumns, timeout_s: float | None = None) -> WriteResult:
    """As `write`, for a single event: what comes at the same time is sent together."""
    _check_places(columns)
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
    return _told([receipt])


def _check_places(columns: EventColumns) -> None:
    if columns.partitions is not None and columns.hashes is not None:
        for partition, hash_ in zip(columns.partitions, columns.hashes, strict=False):
            if partition is not None and hash_ is not None:
                raise FieldError(ErrorCode.INVALID_REQUEST, "give a partition or a hash, not both", "hash")


def _first(column: Sequence[T] | None) -> T | None:
    return None if column is None else column[0]


def _times_s(member: ClusterMember, times_ms: Sequence[int | None] | None) -> list[float] | None:
    if times_ms is None:
        return None
    now_ms = member.clock.wall_ms()
    return [(now_ms if each is None else each) / 1000 for each in times_ms]


def _told(receipts: Iterable[Receipt]) -> WriteResult:
    partitions: list[int] = []
    offsets: list[int] = []
    ids: list[bytes] = []
    failures: dict[int, MillstreamError] = {}
    for row, receipt in enumerate(receipts):
        ids.append(receipt.message_id)
        partition = offset = -1
        if not receipt.done():
            text = f"a message to {receipt.topic!r} was not answered for in time; it is not known whether it was stored"
            failures[row] = MillstreamError(ErrorCode.REQUEST_TIMED_OUT, text)
        else:
            try:
                place = receipt.result(0)
                partition, offset = place.partition, place.offset
            except MillstreamError as error:
                failures[row] = error
        partitions.append(partition)
        offsets.append(offset)
    return WriteResult(partitions, offsets, ids, failures)
