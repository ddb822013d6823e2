"""Reads the requested part of a topic: partition by partition, or all concurrently with `follow`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from millstream.cli.positions import OFFSET_MAX, Beginning, Latest, Offset, Position
from millstream.model.names import TopicPartition
from millstream.records.record import Record
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.wire_client import WireClient

FOLLOW_WAIT_MS = 5_000
END_WAIT_MS = 500
LOOK_AGAIN_S = 15.0
"""How often a followed topic is checked for added partitions."""

Write = Callable[[int, Sequence[Record]], None]
Select = Callable[[Record], bool]


class ReadSpan(NamedTuple):
    """The offsets to read of one partition: from `start` up to, but not including, `end`."""

    partition: int
    start: int
    end: int


class PrintedChunk(NamedTuple):
    partition: int
    records: Sequence[Record]


class TopicRead:
    """Reads a topic once, or follows it."""

    def __init__(self, client: WireClient, topic: str, timeout_s: float, *, follow: bool) -> None:
        self._client = client
        self._topic = topic
        self._timeout_s = timeout_s
        self._follow = follow

    async def run(
        self,
        partitions: Sequence[int],
        first: Position,
        last: Position | None,
        count: int | None,
        write: Write,
        select: Select | None = None,
    ) -> None:
        """Reads these partitions (none: all) and passes at most `count` messages to `write`.

        With `select`, only messages for which it returns True are passed on and counted. A follower of all partitions
        reads added partitions from their beginning.
        """
        spans = await find_spans(
            self._client, self._topic, partitions, first, last, self._timeout_s, follow=self._follow
        )
        left = OFFSET_MAX if count is None else count
        grows = self._follow and not partitions and last is None
        together = grows or (self._follow and len(spans) > 1)
        source = self._side_by_side(spans, grows=grows) if together else self._one_by_one(spans)
        async with aclosing(source) as chunks:
            async for number, records in chunks:
                chosen = records if select is None else list(filter(select, records))
                if chosen:
                    write(number, chosen[:left])
                left -= len(chosen)
                if left <= 0:
                    return

    async def _one_by_one(self, spans: Sequence[ReadSpan]) -> AsyncGenerator[PrintedChunk, None]:
        for span in spans:
            async with aclosing(self._chunks(span)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _side_by_side(self, spans: Sequence[ReadSpan], *, grows: bool) -> AsyncGenerator[PrintedChunk, None]:
        """Yields chunks of all partitions in the order in which they arrive. The first failure ends all reads.

        If the topic `grows`, partitions that are added to it are read too.
        """
        loop = asyncio.get_running_loop()
        known = {span.partition for span in spans}
        look_at_s = loop.time() + LOOK_AGAIN_S
        pending = {asyncio.create_task(_next(source)): source for source in map(self._chunks, spans)}
        try:
            while pending:
                wait_s = max(0.0, look_at_s - loop.time()) if grows else None
                done, _ = await asyncio.wait(pending, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if grows and loop.time() >= look_at_s:
                    for source in map(self._chunks, await self._added(known)):
                        pending[asyncio.create_task(_next(source))] = source
                    look_at_s = loop.time() + LOOK_AGAIN_S
                for task in done:
                    source = pending.pop(task)
                    chunk = task.result()
                    if chunk is not None:
                        yield chunk
                        pending[asyncio.create_task(_next(source))] = source
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def _added(self, known: set[int]) -> list[ReadSpan]:
        """Returns the partitions that are not `known` yet, from their beginning, and adds them to `known`."""
        view = (await self._client.metadata([self._topic], timeout_s=self._timeout_s)).topics.get(self._topic)
        numbers = {row.number for row in view.partitions} - known if view is not None else set()
        known |= numbers
        if not numbers:
            return []
        found = await _offsets(self._client, self._topic, sorted(numbers), Beginning(), self._timeout_s)
        return [ReadSpan(number, offset, OFFSET_MAX) for number, offset in found.items()]

    async def _chunks(self, span: ReadSpan) -> AsyncGenerator[PrintedChunk, None]:
        offset = span.start
        while offset < span.end:
            wait_ms = FOLLOW_WAIT_MS if self._follow else END_WAIT_MS
            fetched = await self._client.fetch(
                self._topic, span.partition, offset, max_wait_ms=wait_ms, timeout_s=self._timeout_s + wait_ms / 1000
            )
            records = fetched.records
            if records and records[-1].offset >= span.end:
                records = [record for record in records if record.offset < span.end]
            if records:
                yield PrintedChunk(span.partition, records)
            if not self._follow and fetched.next_offset == offset >= fetched.high_watermark:
                return  # The log has become shorter since the read began.
            offset = fetched.next_offset


async def find_spans(
    client: WireClient,
    topic: str,
    partitions: Sequence[int],
    first: Position,
    last: Position | None,
    timeout_s: float,
    *,
    follow: bool = False,
) -> list[ReadSpan]:
    """Resolves two positions to offsets in these partitions (none: all). Only `follow` reads past the current end."""
    view = await client.describe_topic(topic, timeout_s=timeout_s)
    numbers = list(dict.fromkeys(partitions)) or [row.number for row in view.partitions]
    starts = await _offsets(client, topic, numbers, first, timeout_s)
    ends = dict.fromkeys(numbers, OFFSET_MAX)
    if last is not None:
        ends = await _offsets(client, topic, numbers, last, timeout_s)
    if not follow:
        latest = await _offsets(client, topic, numbers, Latest(), timeout_s)
        ends = {number: min(end, latest[number]) for number, end in ends.items()}
    return [ReadSpan(number, starts[number], ends[number]) for number in numbers]


async def _offsets(
    client: WireClient, topic: str, partitions: Sequence[int], position: Position, timeout_s: float
) -> dict[int, int]:
    if isinstance(position, Offset):
        return dict.fromkeys(partitions, position.offset)
    if isinstance(position, Beginning | Latest):
        when = BEGINNING if isinstance(position, Beginning) else LATEST
    else:
        when = position.timestamp_ms
    places = {TopicPartition(topic, number): when for number in partitions}
    found = await client.list_offsets(places, timeout_s=timeout_s)
    offsets = {where.partition: listed.offset for where, listed in found.items()}
    # No message is that late, so the position is the offset of the next message.
    late = [number for number, offset in offsets.items() if offset < 0]
    if late:
        offsets |= await _offsets(client, topic, late, Latest(), timeout_s)
    return offsets


async def _next(chunks: AsyncGenerator[PrintedChunk, None]) -> PrintedChunk | None:
    return await anext(chunks, None)
