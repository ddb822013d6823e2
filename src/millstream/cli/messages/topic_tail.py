"""Follows topics as messages arrive, without a group or as a member that commits what it has printed."""

import asyncio
from collections.abc import Mapping, Sequence

from millstream.cli.messages.topic_reads import TopicRead, Write
from millstream.cli.positions import Beginning, Latest, Position, Time
from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.start_words import BEGINNING, LATEST
from millstream.process.concurrency import until_first
from millstream.records.record import Record
from millstream.sdk.aio.consumer import AsyncConsumer
from millstream.sdk.consuming.group.member_core import OUTSIDE
from millstream.sdk.consuming.message_batch import MessageBatch
from millstream.sdk.wire_client import WireClient

COMMIT_EVERY_S = 1.0


class Limit:
    """Counts how many more messages may be printed, over all topics."""

    def __init__(self, count: int | None) -> None:
        self._left = count
        self.reached = asyncio.Event()

    def cut(self, records: Sequence[Record]) -> Sequence[Record]:
        """Returns as many of the records as may still be printed, and counts them as printed."""
        if self._left is None:
            return records
        wanted = records[: self._left]
        self._left -= len(wanted)
        if not self._left:
            self.reached.set()
        return wanted


async def follow(
    client: WireClient,
    writers: Mapping[str, Write],
    partitions: Sequence[int],
    first: Position,
    limit: Limit,
    timeout_s: float,
) -> None:
    """Follows all topics concurrently until the limit is reached. The first failure ends all reads."""

    def limited(write: Write) -> Write:
        def cut(partition: int, records: Sequence[Record]) -> None:
            wanted = limit.cut(records)
            if wanted:
                write(partition, wanted)

        return cut

    async def until_enough() -> None:
        await limit.reached.wait()

    works = [until_enough()]
    for topic, write in writers.items():
        reading = TopicRead(client, topic, timeout_s, follow=True)
        works.append(reading.run(partitions, first, None, None, limited(write)))
    await until_first(*works)


async def follow_as_member(
    client: WireClient,
    group: str,
    writers: Mapping[str, Write],
    first: Position,
    limit: Limit,
    timeout_s: float,
) -> None:
    """Follows the topics as a member of a group, which shares their partitions.

    Commits the printed messages every COMMIT_EVERY_S, when partitions are revoked, and at the end, even after a
    failure. Never commits a message that was not printed.
    """
    for topic in writers:
        await client.describe_topic(topic, timeout_s=timeout_s)
    printed: dict[TopicPartition, int] = {}

    async def release(_places: Sequence[TopicPartition]) -> None:
        await _try_commit(consumer, printed)

    consumer = client.consumer(list(writers), group=group, start=_start(first), auto_commit=None, on_revoked=release)
    async with consumer:
        try:
            await _print(consumer, writers, limit, printed)
        finally:
            await _commit(consumer, printed)


async def _print(
    consumer: AsyncConsumer,
    writers: Mapping[str, Write],
    limit: Limit,
    printed: dict[TopicPartition, int],
) -> None:
    loop = asyncio.get_running_loop()
    due_s = loop.time() + COMMIT_EVERY_S
    while not limit.reached.is_set():
        batch = await consumer.poll_batch(COMMIT_EVERY_S)
        if batch is not None:
            wanted = limit.cut([Record(*message[2:]) for message in batch.messages])
            writers[batch.topic](batch.partition, wanted)
            printed[TopicPartition(batch.topic, batch.partition)] = _offset_after(batch, wanted)
        if loop.time() >= due_s:
            await _try_commit(consumer, printed)
            due_s = loop.time() + COMMIT_EVERY_S


async def _try_commit(consumer: AsyncConsumer, printed: dict[TopicPartition, int]) -> None:
    """Commits; ignores transient failures and a lost membership.

    Messages that could not be committed are printed again later.
    """
    try:
        await _commit(consumer, printed)
    except MillstreamError as error:
        if error.code in OUTSIDE:
            printed.clear()
        elif not error.code.retriable:
            raise


async def _commit(consumer: AsyncConsumer, printed: Mapping[TopicPartition, int]) -> None:
    """Commits the partitions that this member still owns. Their new owners commit the others."""
    held = set(consumer.assignment)
    await consumer.commit({where: offset for where, offset in printed.items() if where in held})


def _offset_after(batch: MessageBatch, printed: Sequence[Record]) -> int:
    """Returns the offset after the printed part of a batch."""
    return batch.next_offset if len(printed) == len(batch.messages) else printed[-1].offset + 1


def _start(first: Position) -> str | float:
    if isinstance(first, Time):
        return first.timestamp_ms / 1000
    assert isinstance(first, Beginning | Latest)
    return BEGINNING if isinstance(first, Beginning) else LATEST
