"""The batched stream of writes: batches are put as they come, and acknowledged in their order.

Two coroutines serve a stream, whatever it carries: one takes batches from the caller and puts each with one call of the
SDK, the other waits for the oldest, and tells what became of it. While as many as may be are under way, or the producer
is full, nothing is taken from the caller, whom the transport then holds back.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from penstock.gateway.clusters import Member
from penstock.gateway.grpc.calls import Call, Write, shutting_down, together
from penstock.gateway.grpc.limits import GrpcLimits
from penstock.gateway.grpc.statuses import error_of
from penstock.gateway.grpc.telling import columns_of
from penstock.gateway.grpc.v1 import messages_pb2 as pb
from penstock.gateway.writing import Columns, put, written
from penstock.model.errors import ErrorCode, PenstockError
from penstock.sdk.producing.lots import Receipts


class _Batch(NamedTuple):
    sequence: int
    events: int
    tell_ids: bool
    receipts: Receipts | PenstockError


class PutStream:
    """One stream."""

    def __init__(self, call: Call, limits: GrpcLimits, answer: Write) -> None:
        self._call = call
        self._events_max = limits.events
        self._answer = answer
        self._room = asyncio.Semaphore(limits.batches)
        self._under_way: asyncio.Queue[_Batch | None] = asyncio.Queue()
        self._is_drained = False

    async def run(self, requests: AsyncIterator[pb.PutStreamRequest]) -> None:
        """Until the caller has no more and all is acknowledged; SHUTTING_DOWN, with all that was put acknowledged, when
        the gateway is drained."""
        await together(self._take(requests), self._acknowledge())
        if self._is_drained:
            raise shutting_down()

    async def _take(self, requests: AsyncIterator[pb.PutStreamRequest]) -> None:
        if not await self._call.waiting(self._take_all(requests)):
            self._is_drained = True
        self._under_way.put_nowait(None)

    async def _take_all(self, requests: AsyncIterator[pb.PutStreamRequest]) -> bool:
        """Nothing is awaited between a put and its place in the queue: what is put is acknowledged."""
        while True:
            await self._room.acquire()
            request = await anext(requests, None)
            if request is None:
                return True
            columns = columns_of(request.topic, request.events, request.columns, self._events_max)
            receipts = await self._put(request.cluster, columns)
            batch = _Batch(request.sequence, len(columns), request.tell_message_ids, receipts)
            self._under_way.put_nowait(batch)

    async def _put(self, cluster: str, columns: Columns) -> Receipts | PenstockError:
        """What is wrong with one batch does not end the stream."""
        try:
            member = await self._call.cluster(cluster).home(columns.topic)
            while True:
                try:
                    return put(member, columns)
                except PenstockError as error:
                    if error.code is not ErrorCode.PRODUCER_FULL:
                        raise
                await _wait_for_room(member, columns)
        except PenstockError as error:
            return error

    async def _acknowledge(self) -> None:
        while (batch := await self._under_way.get()) is not None:
            await self._answer(await _told(batch))
            self._room.release()


async def _wait_for_room(member: Member, columns: Columns) -> None:
    await member.producer.room(sum(len(value) for value in columns.values if value is not None))


async def _told(batch: _Batch) -> pb.PutStreamResponse:
    if isinstance(batch.receipts, PenstockError):
        none = [-1] * batch.events
        failure = pb.PutFailure(first=0, count=batch.events, error=error_of(batch.receipts))
        return pb.PutStreamResponse(partitions=none, offsets=none, failures=[failure], sequence=batch.sequence)
    found = await written(batch.receipts, with_ids=batch.tell_ids)
    return pb.PutStreamResponse(
        partitions=found.partitions,
        offsets=found.offsets,
        message_ids=found.message_ids if batch.tell_ids else (),
        failures=failures_told(found.failures) if found.failures else (),
        sequence=batch.sequence,
    )


def failures_told(failures: Mapping[int, PenstockError]) -> list[pb.PutFailure]:
    """Neighbours that failed alike, together."""
    told: list[pb.PutFailure] = []
    last: PenstockError | None = None
    for number, error in sorted(failures.items()):
        is_alike = last is not None and (error.code, error.detail) == (last.code, last.detail)
        if is_alike and told[-1].first + told[-1].count == number:
            told[-1].count += 1
        else:
            told.append(pb.PutFailure(first=number, count=1, error=error_of(error)))
        last = error
    return told
