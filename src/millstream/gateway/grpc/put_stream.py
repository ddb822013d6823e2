"""The batched stream of writes: batches are put as they come, and acknowledged in their order.

Two coroutines serve a stream, whatever it carries: one takes batches from the caller and puts each with one call of the
SDK, the other waits for the oldest, and tells what became of it. While as many as may be are under way, or the producer
is full, nothing is taken from the caller, whom the transport then holds back.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from millstream.gateway.grpc.call_handling import Call, Write, shutting_down, together
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.grpc.message_conversion import columns_of
from millstream.gateway.grpc.statuses import error_of
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.operations.clusters import ClusterMember
from millstream.gateway.operations.writes import EventColumns, put, written
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.producing.bulk import Receipts

_ALL_BYTES = 2**62
"""Room for so much is there when nothing else is held; then anything is taken."""


class _Batch(NamedTuple):
    sequence: int
    events: int
    tell_ids: bool
    receipts: Receipts | MillstreamError


class PutStream:
    """One stream."""

    def __init__(self, call: Call, limits: GrpcLimits, answer: Write) -> None:
        self._call = call
        self._events_max = limits.events
        self._answer = answer
        self._room = asyncio.Semaphore(limits.batches)
        self._under_way: asyncio.Queue[_Batch | None] = asyncio.Queue()
        self._failure: MillstreamError | None = None

    async def run(self, requests: AsyncIterator[pb.PutStreamRequest]) -> None:
        """Until the caller has no more. What is wrong with all of the stream is raised, SHUTTING_DOWN when the gateway
        is drained; whatever happens, all that was put is acknowledged first."""
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
        """Nothing is awaited between a put and its place in the queue: what is put is acknowledged."""
        while True:
            await self._room.acquire()
            request = await anext(requests, None)
            if request is None:
                return True
            receipts = await self._put(request)
            count = len(request.events) or len(request.columns.values)
            self._under_way.put_nowait(_Batch(request.sequence, count, request.tell_message_ids, receipts))

    async def _put(self, request: pb.PutStreamRequest) -> Receipts | MillstreamError:
        """What is wrong with one batch does not end the stream."""
        try:
            columns = columns_of(request.topic, request.events, request.columns, self._events_max)
            return await _put_with_room(await self._call.cluster(request.cluster).home(columns.topic), columns)
        except MillstreamError as error:
            return error

    async def _acknowledge(self) -> None:
        while (batch := await self._under_way.get()) is not None:
            await self._answer(await self._told(batch))
            self._room.release()

    async def _told(self, batch: _Batch) -> pb.PutStreamResponse:
        if isinstance(batch.receipts, MillstreamError):
            none = [-1] * batch.events
            failure = pb.PutFailure(first=0, count=batch.events, error=error_of(batch.receipts))
            return pb.PutStreamResponse(partitions=none, offsets=none, failures=[failure], sequence=batch.sequence)
        found = await written(batch.receipts, with_ids=batch.tell_ids)
        self._call.traffic.events_written += found.stored
        return pb.PutStreamResponse(
            partitions=found.partitions,
            offsets=found.offsets,
            message_ids=found.message_ids if batch.tell_ids else (),
            failures=failures_told(found.failures) if found.failures else (),
            sequence=batch.sequence,
        )


async def _put_with_room(member: ClusterMember, columns: EventColumns) -> Receipts:
    """As `put`, once there is room: for the values, or if that was not enough, since there is more to a batch, all."""
    room_bytes = sum(len(value) for value in columns.values if value is not None)
    while True:
        try:
            return put(member, columns)
        except MillstreamError as error:
            if error.code is not ErrorCode.PRODUCER_FULL:
                raise
        await member.producer.room(room_bytes)
        room_bytes = _ALL_BYTES


def failures_told(failures: Mapping[int, MillstreamError]) -> list[pb.PutFailure]:
    """Neighbours that failed alike, together."""
    told: list[pb.PutFailure] = []
    last: MillstreamError | None = None
    for number, error in sorted(failures.items()):
        is_alike = last is not None and (error.code, error.detail) == (last.code, last.detail)
        if is_alike and told[-1].first + told[-1].count == number:
            told[-1].count += 1
        else:
            told.append(pb.PutFailure(first=number, count=1, error=error_of(error)))
        last = error
    return told
