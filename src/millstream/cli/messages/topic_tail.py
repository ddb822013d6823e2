"""Follows topics as messages arrive: by itself, or as a member of a group that commits as it goes."""

import asyncio
from collections.abc import Mapping, Sequence

from millstream.cli.messages.topic_reads import TopicRead, Write
from millstream.cli.positions import Beginning, Latest, Position, Time
from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.record import Record
from millstream.sdk.aio.consumer import AsyncConsumer
from millstream.sdk.consuming.group.member_core import OUTSIDE
from millstream.sdk.consuming.message_batch import MessageBatch
from millstream.sdk.wire_client import WireClient

COMMIT_EVERY_S = 1.0


class Limit:
    """How many messages are still wanted, of all topics together."""

    def __init__(self, count: int | None) -> None:
        self._left = count
        self.reached = asyncio.Event()

    def cut(self, records: Sequence[Record]) -> Sequence[Record]:
        """As many of these as are still wanted; they count as printed."""
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
    """Each topic by itself, side by side, until the limit is reached; the first that fails ends all."""

    def limited(write: Write) -> Write:
        def cut(partition: int, records: Sequence[Record]) -> None:
            wanted = limit.cut(records)
            if wanted:
                write(partition, wanted)

        return cut

    async def until_enough() -> None:
        await limit.reached.wait()

    tasks = [asyncio.create_task(until_enough())]
    for topic, write in writers.items():
        reading = TopicRead(client, topic, timeout_s, follow=True)
        tasks.append(asyncio.create_task(reading.run(partitions, first, None, None, limited(write))))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def follow_as_member(
    client: WireClient,
    group: str,
    writers: Mapping[str, Write],
    first: Position,
    limit: Limit,
    timeout_s: float,
) -> None:
    """Share the topics with the group's other members. What was printed is committed: now and then, and at the end,
    however it ends; a message that was not printed never is."""
    for topic in writers:
        await client.describe_topic(topic, timeout_s=timeout_s)
    printed: dict[TopicPartition, int] = {}

    async def release(_places: Sequence[TopicPartition]) -> None:
        await _commit_for_now(consumer, printed)

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
            printed[TopicPartition(batch.topic, batch.partition)] = _behind(batch, wanted)
        if loop.time() >= due_s:
            await _commit_for_now(consumer, printed)
            due_s = loop.time() + COMMIT_EVERY_S


async def _commit_for_now(consumer: AsyncConsumer, printed: dict[TopicPartition, int]) -> None:
    """As `_commit`; but that the group went on without this member meanwhile, or cannot be asked, is no reason to end:
    what was not committed is printed again."""
    try:
        await _commit(consumer, printed)
    except MillstreamError as error:
        if error.code in OUTSIDE:
            printed.clear()
        elif not error.code.retriable:
            raise


async def _commit(consumer: AsyncConsumer, printed: Mapping[TopicPartition, int]) -> None:
    """Commit for the partitions that are still this member's; for the others somebody else does."""
    held = set(consumer.assignment)
    await consumer.commit({where: offset for where, offset in printed.items() if where in held})


def _behind(batch: MessageBatch, printed: Sequence[Record]) -> int:
    """Where to go on after what was printed of a batch."""
    return batch.next_offset if len(printed) == len(batch.messages) else printed[-1].offset + 1


def _start(first: Position) -> str | float:
    if isinstance(first, Time):
        return first.timestamp_ms / 1000
    assert isinstance(first, Beginning | Latest)
    return "beginning" if isinstance(first, Beginning) else "latest"
