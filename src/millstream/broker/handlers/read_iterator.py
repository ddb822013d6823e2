"""ReadIterator: the messages of an iterator, from the partition that they lie in, now or within the time the reader
will wait.

The server asks nobody: that the iterator is signed and in flight is enough. It hands out whole batches as they are
stored, with the offset at which the iterator ends, and makes the next iterator itself: the same right, further on.
"""

import asyncio
from uuid import UUID

from msgspec.structs import replace

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import Answer, BrokerRequest, Result, Work
from millstream.broker.net.memory_limits import HUNGRY_S, MemoryLimits
from millstream.broker.signed_iterators import IteratorServing, error_fields
from millstream.groups.iterators.iterator import BEGINNING, END, Iterator
from millstream.model.errors import MillstreamError
from millstream.partition.partition import Partition
from millstream.partition.raw_reads import read_stretch, read_stretch_cold
from millstream.storage.log.log_reader import Stretch
from millstream.wire.messages import read_request, write_response
from millstream.wire.value_writers import unsigned_varint

API = "ReadIterator"

ANSWER_BYTES_MAX = 16 * 1024 * 1024
WAIT_S_MAX = 300.0

_NO_RECORDS = b"\x01\x00"
"""How an answer without records ends: with their length, one more than it is, and with no tags."""


class ReadIteratorHandler:
    def __init__(self, partitions: PartitionLookup, serving: IteratorServing, memory: MemoryLimits) -> None:
        self._partitions = partitions
        self._serving = serving
        self._memory = memory

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        try:
            iterator = self._serving.seal.open(bytes(fields["iterator"]))
            self._serving.served.check(iterator)
            partition = find_partition(self._partitions, UUID(bytes=iterator.topic_id), iterator.partition)
            wait_s = min(fields["max_wait_ms"] / 1000, WAIT_S_MAX)
            poll = _Poll(self, version, _placed(iterator, partition), partition, fields["max_bytes"], wait_s)
            return poll.answer_now() or poll.begin()
        except MillstreamError as error:
            return refused(version, error)

    def bytes_max(self, wanted: int) -> int:
        """How many bytes an answer may have now."""
        return self._memory.answer_bytes_max(min(max(wanted, 1), ANSWER_BYTES_MAX))

    def encode(self, version: int, iterator: Iterator, partition: Partition, found: Stretch) -> Answer:
        seal, served = self._serving.seal, self._serving.served
        data, behind = found
        end = min(behind, iterator.offset + iterator.messages_max)
        following = seal.sign(replace(iterator, offset=end)) if served.has_next(iterator) else None
        head = write_response(
            API,
            version,
            {
                "iterator": seal.sign(iterator),
                "next": following,
                "offset": iterator.offset,
                "end_offset": end,
                "high_watermark": partition.high_watermark,
                "log_start_offset": partition.log.start_offset,
            },
        )
        if not data:
            return head
        return [head.removesuffix(_NO_RECORDS) + unsigned_varint(len(data) + 1), data, b"\0"]


class _Poll:
    """One request that may have to wait: `_run` goes on as a task until there is a message, or the time is over."""

    def __init__(
        self,
        handler: ReadIteratorHandler,
        version: int,
        iterator: Iterator,
        partition: Partition,
        max_bytes: int,
        wait_s: float,
    ) -> None:
        self._handler = handler
        self._version = version
        self._iterator = iterator
        self._partition = partition
        self._max_bytes = max_bytes
        self._wait_s = wait_s
        self._is_over = wait_s <= 0
        self._news = asyncio.Event()

    def answer_now(self) -> Answer | None:
        """The answer, if it need not wait for anything. Raises what reading raises."""
        found = self._read()
        return self._answer(found) if found is not None and (found[0] or self._is_over) else None

    def begin(self) -> Work:
        self._timer = asyncio.get_running_loop().call_later(max(0.0, self._wait_s), self.hurry)
        return Work(self._run(), self.hurry)

    def hurry(self) -> None:
        """The time is over, or nobody waits any longer: answer with what is there."""
        self._is_over = True
        self._news.set()

    async def _run(self) -> Answer:
        try:
            while True:
                found = self._read()
                if found is None:
                    found = await read_stretch_cold(self._partition, *self._wanted())
                if found[0] or self._is_over:
                    return self._answer(found)
                await self._wait()
        except MillstreamError as error:
            return refused(self._version, error)
        finally:
            self._timer.cancel()

    async def _wait(self) -> None:
        """For news of the partition; where there is no memory for what is there, for a moment."""
        cancel = self._partition.wait(max(self._iterator.offset, self._partition.high_watermark), self._news.set)
        is_hungry = not self._handler.bytes_max(self._max_bytes)
        try:
            async with asyncio.timeout(HUNGRY_S if is_hungry else None):
                await self._news.wait()
        except TimeoutError:
            pass
        finally:
            cancel()
        if not self._is_over:
            self._news.clear()

    def _read(self) -> Stretch | None:
        """What there is; None if the disk must be waited for. An offset that the log has not reached is waited for, as
        one that is its end."""
        if not self._is_over and self._iterator.offset > self._partition.log.end_offset:
            return b"", self._iterator.offset
        offset, max_bytes, messages = self._wanted()
        if max_bytes <= 0:
            return b"", offset
        return read_stretch(self._partition, offset, max_bytes, messages)

    def _wanted(self) -> tuple[int, int, int]:
        return self._iterator.offset, self._handler.bytes_max(self._max_bytes), self._iterator.messages_max

    def _answer(self, found: Stretch) -> Answer:
        return self._handler.encode(self._version, self._iterator, self._partition, found)


def _placed(iterator: Iterator, partition: Partition) -> Iterator:
    """With its offset in figures, and not before the beginning of the log: what lay there is gone."""
    if iterator.offset == END:
        return replace(iterator, offset=partition.high_watermark)
    start = partition.log.start_offset
    return replace(iterator, offset=start) if iterator.offset == BEGINNING or iterator.offset < start else iterator


def refused(version: int, error: MillstreamError) -> bytes:
    return write_response(API, version, error_fields(error.code, error.detail))
