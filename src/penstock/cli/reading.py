"""Reads the asked-for part of a topic: one partition after the other, or side by side while it follows them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from penstock.cli.positions import Beginning, Latest, Offset, Position
from penstock.records.record import Record
from penstock.sdk.client import AsyncClient
from penstock.sdk.requests import BEGINNING, LATEST

FOLLOW_WAIT_MS = 5_000
END_WAIT_MS = 500
_NO_END = 2**63 - 1

Write = Callable[[int, Sequence[Record]], None]


class Span(NamedTuple):
    """What is read of one partition: from `start` up to `end`, which is not read itself."""

    partition: int
    start: int
    end: int


class Portion(NamedTuple):
    partition: int
    records: Sequence[Record]


class Reading:
    """One reading of a topic."""

    def __init__(self, client: AsyncClient, topic: str, timeout_s: float, *, follow: bool) -> None:
        self._client = client
        self._topic = topic
        self._timeout_s = timeout_s
        self._follow = follow

    async def run(
        self, partition: int | None, first: Position, last: Position | None, count: int | None, write: Write
    ) -> None:
        """Hand over what there is, at most `count` messages in all."""
        spans = await self._spans(partition, first, last)
        left = _NO_END if count is None else count
        together = self._follow and len(spans) > 1
        async with aclosing(self._side_by_side(spans) if together else self._in_turn(spans)) as portions:
            async for number, records in portions:
                write(number, records[:left])
                left -= len(records)
                if left <= 0:
                    return

    async def _spans(self, partition: int | None, first: Position, last: Position | None) -> list[Span]:
        view = await self._client.describe_topic(self._topic, timeout_s=self._timeout_s)
        numbers = [row.number for row in view.partitions] if partition is None else [partition]
        return [Span(number, await self._offset(number, first), await self._end(number, last)) for number in numbers]

    async def _end(self, partition: int, position: Position | None) -> int:
        """Where to stop; unless it follows, never past the end as it is now."""
        asked = _NO_END if position is None else await self._offset(partition, position)
        return asked if self._follow else min(asked, await self._offset(partition, Latest()))

    async def _offset(self, partition: int, position: Position) -> int:
        if isinstance(position, Offset):
            return position.offset
        if isinstance(position, Beginning | Latest):
            when = BEGINNING if isinstance(position, Beginning) else LATEST
        else:
            when = position.timestamp_ms
        found = await self._client.list_offset(self._topic, partition, when, timeout_s=self._timeout_s)
        # No message is that late: the place is where the next one will be.
        return found.offset if found is not None else await self._offset(partition, Latest())

    async def _in_turn(self, spans: Sequence[Span]) -> AsyncGenerator[Portion, None]:
        for span in spans:
            async with aclosing(self._portions(span)) as portions:
                async for portion in portions:
                    yield portion

    async def _side_by_side(self, spans: Sequence[Span]) -> AsyncGenerator[Portion, None]:
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

    async def _portions(self, span: Span) -> AsyncGenerator[Portion, None]:
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
                yield Portion(span.partition, records)
            if not self._follow and fetched.next_offset == offset >= fetched.high_watermark:
                return  # The log is shorter than it was when the reading began.
            offset = fetched.next_offset


async def _next(portions: AsyncGenerator[Portion, None]) -> Portion | None:
    return await anext(portions, None)
