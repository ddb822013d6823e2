"""One put: messages shared out over partitions, cut into batches, and each one's place told.

Batches of one partition go one after the other, so that order is kept; partitions go side by side.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.names import TopicPartition
from penstock.sdk.partitioner import partition_for
from penstock.sdk.producer import Producer, Rows
from penstock.sdk.producing.failures import TOO_LARGE, OutcomeUnknownError
from penstock.sdk.retry import Deadline

BATCH_BYTES = 512 * 1024
"""Where a batch is closed. Half of what a topic takes by default, since the estimate below is a rough one."""

_RECORD_OVERHEAD_BYTES = 32


class Place(NamedTuple):
    """Where a message was stored; `offset` is -1 where the broker did not say (acks=0, or a very late retry)."""

    topic: str
    partition: int
    offset: int


class PutError(PenstockError):
    """At least one message was not confirmed. `places` has None for those; the others are stored."""

    def __init__(self, cause: PenstockError, places: Sequence[Place | None]) -> None:
        super().__init__(cause.code, cause.detail)
        self.places = tuple(places)
        self.outcome_unknown = isinstance(cause, OutcomeUnknownError)
        """True where some of those without a place may be stored nevertheless."""


class Putting(NamedTuple):
    """How one put is to be done."""

    producer: Producer
    topic: str
    compression: str
    acks: int
    deadline: Deadline

    async def run(self, rows: Rows, partitions: Sequence[int]) -> list[Place]:
        """Store each row in the partition named at its place; PutError when not all could be confirmed."""
        places: list[Place | None] = [None] * len(rows)
        shares: dict[int, list[int]] = {}
        for index, partition in enumerate(partitions):
            shares.setdefault(partition, []).append(index)
        work = [self._run_share(rows, partition, indexes, places) for partition, indexes in shares.items()]
        results = [await work[0]] if len(work) == 1 else await asyncio.gather(*work)
        failures = [result for result in results if result is not None]
        if failures:
            worst = next((each for each in failures if isinstance(each, OutcomeUnknownError)), failures[0])
            raise PutError(worst, places) from worst
        return [place for place in places if place is not None]

    async def _run_share(
        self, rows: Rows, partition: int, indexes: list[int], places: list[Place | None]
    ) -> PenstockError | None:
        """Store one partition's part, batch after batch; stops at the first that fails, and gives its error."""
        where = TopicPartition(self.topic, partition)
        share = rows if len(indexes) == len(rows) else rows.picked(indexes)
        waiting = batch_bounds(share)[::-1]
        while waiting:
            start, end = waiting.pop()
            try:
                produced = await self.producer.write(
                    where,
                    share.part(start, end),
                    compression=self.compression,
                    acks=self.acks,
                    deadline=self.deadline,
                )
            except PenstockError as error:
                if error.code not in TOO_LARGE or end - start == 1:
                    return error
                middle = (start + end) // 2  # The topic takes less than we thought.
                waiting += ((middle, end), (start, middle))
                continue
            base = produced.base_offset
            for position in range(start, end):
                offset = -1 if base < 0 else base + position - start
                places[indexes[position]] = Place(self.topic, partition, offset)
        return None


def batch_bounds(rows: Rows, batch_bytes: int = BATCH_BYTES) -> list[tuple[int, int]]:
    """Where to cut, so that each batch stays below `batch_bytes` unless one message alone is larger."""
    bounds = []
    start = size = 0
    for index, value in enumerate(rows.values):
        here = _RECORD_OVERHEAD_BYTES + len(value or b"")
        if rows.keys is not None:
            here += len(rows.keys[index] or b"")
        if rows.headers is not None:
            here += sum(len(name) + len(data or b"") + 10 for name, data in rows.headers[index] or ())
        if size and size + here > batch_bytes:
            bounds.append((start, index))
            start, size = index, 0
        size += here
    bounds.append((start, len(rows)))
    return bounds


def choose_partitions(rows: Rows, count: int, keyless: int) -> list[int]:
    """A partition for each row: by its key, or `keyless` for those that have none."""
    if rows.keys is None or count == 1:
        return [keyless % count] * len(rows)
    return [keyless % count if key is None else partition_for(key, count) for key in rows.keys]
