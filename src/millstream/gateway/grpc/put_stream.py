"""Implements the batched write stream: writes batches as they arrive and acknowledges them in order.

Two coroutines serve each stream. One receives batches and passes each to the producer with one call. The other waits
for the oldest batch and sends its outcome. While the maximum number of batches is in flight, or the producer's buffer
is full, nothing is received, and gRPC's flow control slows the client down.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from millstream.gateway.grpc.call_handling import Call, Write, shutting_down
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.grpc.message_conversion import columns_of
from millstream.gateway.grpc.statuses import error_of
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.operations.clusters import ClusterMember
from millstream.gateway.operations.writes import EventColumns, outcomes_of, put
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.concurrency import together
from millstream.sdk.producing.bulk import Receipts

_ALL_BYTES = 2**62
"""More than any buffer holds, so `room` waits until the producer's buffer is empty. Then it accepts a batch of any
size.
"""


class _Batch(NamedTuple):
    sequence: int
    events: int
    tell_ids: bool
    receipts: Receipts | MillstreamError


class PutStream:
    """Serves one write stream."""

    def __init__(self, call: Call, limits: GrpcLimits, answer: Write) -> None:
        self._call = call
        self._events_max = limits.events
        self._answer = answer
        self._room = asyncio.Semaphore(limits.batches)
        self._under_way: asyncio.Queue[_Batch | None] = asyncio.Queue()
        self._failure: MillstreamError | None = None

    async def run(self, requests: AsyncIterator[pb.PutStreamRequest]) -> None:
        """Serve until the client closes its side. Every accepted batch is acknowledged first, also on an error.

        Raises errors that concern the whole stream, and SHUTTING_DOWN when the gateway drains.
        """
        await together(self._take(requests), self._acknowledge())
        if self._failure is not None:
            raise self._failure

    async def _take(self, requests: AsyncIterator[pb.PutStreamRequest]) -> None:
        try:
            if not await self._call.waiting(self._take_all(requests)):
                self._failure = shutting_down()
        except MillstreamError as error:
            self._failure = error
        self._under_way.put_nowait(None)

    async def _take_all(self, requests: AsyncIterator[pb.PutStreamRequest]) -> bool:
        """Receive batches until the client closes its side.

        Nothing is awaited between a put and its entry in the queue, so every put is acknowledged.
        """
        while True:
            await self._room.acquire()
            request = await anext(requests, None)
            if request is None:
                return True
            receipts = await self._put(request)
            count = len(request.events) or len(request.columns.values)
            self._under_way.put_nowait(_Batch(request.sequence, count, request.return_message_ids, receipts))

    async def _put(self, request: pb.PutStreamRequest) -> Receipts | MillstreamError:
        """Put one batch. An error of the batch is returned, because it must not end the stream."""
        try:
            columns = columns_of(request.topic, request.events, request.columns, self._events_max)
            return await _put_with_room(await self._call.cluster(request.cluster).home(columns.topic), columns)
        except MillstreamError as error:
            return error

    async def _acknowledge(self) -> None:
        while (batch := await self._under_way.get()) is not None:
            await self._answer(await self._acknowledgement(batch))
            self._room.release()

    async def _acknowledgement(self, batch: _Batch) -> pb.PutStreamResponse:
        if isinstance(batch.receipts, MillstreamError):
            none = [-1] * batch.events
            failure = pb.PutFailure(first=0, count=batch.events, error=error_of(batch.receipts))
            return pb.PutStreamResponse(partitions=none, offsets=none, failures=[failure], sequence=batch.sequence)
        found = await outcomes_of(batch.receipts, with_ids=batch.tell_ids)
        self._call.traffic.events_written += found.stored
        return pb.PutStreamResponse(
            partitions=found.partitions,
            offsets=found.offsets,
            message_ids=found.message_ids if batch.tell_ids else (),
            failures=to_failures(found.failures) if found.failures else (),
            sequence=batch.sequence,
            duplicates=found.duplicates,
        )


async def _put_with_room(member: ClusterMember, columns: EventColumns) -> Receipts:
    """Put a batch once the producer's buffer has room.

    It first waits for room for the values. A batch takes more than that, so after a second refusal it waits until the
    buffer is empty.
    """
    room_bytes = sum(len(value) for value in columns.values if value is not None)
    while True:
        try:
            return put(member, columns)
        except MillstreamError as error:
            if error.code is not ErrorCode.PRODUCER_FULL:
                raise
        await member.producer.room(room_bytes)
        room_bytes = _ALL_BYTES


def to_failures(failures: Mapping[int, MillstreamError]) -> list[pb.PutFailure]:
    """Convert failures, merging neighbours with the same error."""
    merged: list[pb.PutFailure] = []
    last: MillstreamError | None = None
    for number, error in sorted(failures.items()):
        is_alike = last is not None and (error.code, error.detail) == (last.code, last.detail)
        if is_alike and merged[-1].first + merged[-1].count == number:
            merged[-1].count += 1
        else:
            merged.append(pb.PutFailure(first=number, count=1, error=error_of(error)))
        last = error
    return merged
