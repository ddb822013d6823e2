"""Reads the asked-for part of a topic: one partition after the other, or side by side while it follows them."""

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

Write = Callable[[int, Sequence[Record]], None]
Select = Callable[[Record], bool]


class ReadSpan(NamedTuple):
    """What is read of one partition: from `start` up to `end`, which is not read itself."""

    partition: int
    start: int
    end: int


class PrintedChunk(NamedTuple):
    partition: int
    records: Sequence[Record]


class TopicRead:
    """One reading of a topic."""

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
        """Hand over what there is in these partitions, or all, at most `count` messages in all.

        With `select`, only messages it is true for are handed over and counted.
        """
        spans = await find_spans(
            self._client, self._topic, partitions, first, last, self._timeout_s, follow=self._follow
        )
        left = OFFSET_MAX if count is None else count
        together = self._follow and len(spans) > 1
        async with aclosing(self._side_by_side(spans) if together else self._in_turn(spans)) as portions:
            async for number, records in portions:
                chosen = records if select is None else list(filter(select, records))
                if chosen:
                    write(number, chosen[:left])
                left -= len(chosen)
                if left <= 0:
                    return

    async def _in_turn(self, spans: Sequence[ReadSpan]) -> AsyncGenerator[PrintedChunk, None]:
        for span in spans:
            async with aclosing(self._portions(span)) as portions:
                async for portion in portions:
                    yield portion

    async def _side_by_side(self, spans: Sequence[ReadSpan]) -> AsyncGenerator[PrintedChunk, None]:
        """Whichever has something comes next; the first that fails ends all."""
        pending = {asyncio.create_task(_next(source)): source for source in map(self._portions, spans)}
        try:
            while pending:
                done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    source = pending.pop(task)
                    portion = task.result()
                    if portion is not None:
                        yield portion
                        pending[asyncio.create_task(_next(source))] = source
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def _portions(self, span: ReadSpan) -> AsyncGenerator[PrintedChunk, None]:
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
                return  # The log is shorter than it was when the reading began.
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
    """What two places mean in these partitions, or all; unless it follows, never past the end as it is now."""
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
    # Where no message is that late, the place is where the next one will be.
    late = [number for number, offset in offsets.items() if offset < 0]
    if late:
        offsets |= await _offsets(client, topic, late, Latest(), timeout_s)
    return offsets


async def _next(portions: AsyncGenerator[PrintedChunk, None]) -> PrintedChunk | None:
    return await anext(portions, None)
