"""ReadIterator: returns the messages of an iterator, or waits for them until the reader's maximum wait time.

The partition's server does not ask the coordinator: the iterator must be signed and in flight. The server returns whole
stored batches and the offset at which the iterator ends. It also signs the next iterator, which continues there.
"""

from collections.abc import Callable, Iterable
from uuid import UUID

from msgspec.structs import replace

from millstream.broker.dispatch.capabilities import LedElsewhereError, PartitionLookup, find_partition, leader_for
from millstream.broker.dispatch.request import Answer, BrokerRequest, Result
from millstream.broker.long_poll import ANSWER_BYTES_MAX, poll
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.signed_iterators import IteratorServing, error_fields
from millstream.groups.iterators.iterator import BEGINNING, END, Iterator
from millstream.model.errors import MillstreamError
from millstream.model.ids import Offset, TopicId
from millstream.model.waiters import Cancel
from millstream.partition.leadership import Leadership
from millstream.partition.offset_reader import OffsetNotReachedError
from millstream.storage.log.log_reader import Stretch
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.messages import read_request, write_response
from millstream.wire.value_writers import unsigned_varint

API = "ReadIterator"

_NO_RECORDS = b"\x01\x00"
"""The end of a response without records: the length plus one, as a varint, and an empty tag section."""


class ReadIteratorHandler:
    def __init__(self, partitions: PartitionLookup, serving: IteratorServing, memory: MemoryLimits) -> None:
        self._partitions = partitions
        self._serving = serving
        self._memory = memory

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        try:
            iterator = self._serving.signer.open(bytes(fields["iterator"]))
            request.access.check_topic(iterator.topic)
            self._serving.served.check(iterator)
            topic_id = TopicId(UUID(bytes=iterator.topic_id))
            partition = find_partition(self._partitions, topic_id, iterator.partition, request.access)
        except MillstreamError as error:
            return _refused(version, error, error.leader if isinstance(error, LedElsewhereError) else None)
        read = _IteratorRead(self, version, _resolved(iterator, partition), partition, fields["max_bytes"])
        return poll(read, fields["max_wait_ms"])

    def budget(self, wanted: int) -> int:
        """Return the maximum size of a response at this moment."""
        return self._memory.answer_bytes_max(min(max(wanted, 1), ANSWER_BYTES_MAX))

    def refuse(self, version: int, partition: Leadership, error: MillstreamError) -> bytes:
        """Encode the error of a read. If the leadership has ended, the response names the current leader."""
        return _refused(version, error, leader_for(error, self._partitions.image, *partition.key))

    def encode(self, version: int, iterator: Iterator, partition: Leadership, found: Stretch) -> Answer:
        signer, served = self._serving.signer, self._serving.served
        data, next_offset = found
        end = min(next_offset, iterator.offset + iterator.messages_max)
        following = signer.sign(replace(iterator, offset=end)) if served.has_next(iterator) else None
        head = write_response(
            API,
            version,
            {
                "iterator": signer.sign(iterator),
                "next": following,
                "offset": iterator.offset,
                "end_offset": end,
                "high_watermark": partition.high_watermark,
                "log_start_offset": partition.log.start_offset,
            },
        )
        if not data:
            return head
        partition.traffic.fetched(len(data), messages=end - iterator.offset)
        return [head.removesuffix(_NO_RECORDS) + unsigned_varint(len(data) + 1), data, b"\0"]


class _IteratorRead:
    """One request that reads the iterator's partition."""

    def __init__(
        self,
        handler: ReadIteratorHandler,
        version: int,
        iterator: Iterator,
        partition: Leadership,
        max_bytes: int,
    ) -> None:
        self._handler = handler
        self._version = version
        self._iterator = iterator
        self._partition = partition
        self._max_bytes = max_bytes

    def read(self) -> "_IteratorPass":
        iterator = self._iterator
        reading = _IteratorPass(
            self._partition,
            iterator.offset,
            max_messages=iterator.messages_max,
            budget=self._handler.budget(self._max_bytes),
        )
        reading.run()
        return reading

    def answer(self, done: "_IteratorPass") -> Answer:
        if done.error is not None:
            return self._handler.refuse(self._version, self._partition, done.error)
        assert done.found is not None, "a finished pass found something, or an error"
        return self._handler.encode(self._version, self._iterator, self._partition, done.found)


class _IteratorPass:
    """One read of the partition. `found` and `error` are both None while a read from disk is still needed."""

    def __init__(self, partition: Leadership, offset: Offset, *, max_messages: int, budget: int) -> None:
        self.found: Stretch | None = None
        self.error: MillstreamError | None = None
        self._partition = partition
        self._offset = offset
        self._max_messages = max_messages
        self._budget = budget

    @property
    def is_finished(self) -> bool:
        return self.found is not None or self.error is not None

    @property
    def is_enough(self) -> bool:
        """True if there are records or an error. An offset after the log end is an error only if the wait expires."""
        if self.found is not None:
            return len(self.found[0]) > 0
        return not isinstance(self.error, OffsetNotReachedError)

    @property
    def is_hungry(self) -> bool:
        return self._budget <= 0 and self._offset < self._partition.high_watermark

    def run(self) -> None:
        reader = self._partition.reader
        try:
            if self._budget > 0:
                self.found = reader.read(self._offset, max_bytes=self._budget, max_messages=self._max_messages)
            else:
                reader.check(self._offset)
                self.found = b"", self._offset
        except MillstreamError as error:
            self.error = error

    async def go_on(self) -> None:
        try:
            self.found = await self._partition.reader.read_cold(
                self._offset, max_bytes=self._budget, max_messages=self._max_messages
            )
        except MillstreamError as error:
            self.error = error

    def waits(self, wake: Callable[[], None]) -> Iterable[list[Cancel]]:
        partition = self._partition
        yield [partition.reader.wait(max(self._offset, partition.high_watermark), wake)]


def _resolved(iterator: Iterator, partition: Leadership) -> Iterator:
    """Return the iterator with its symbolic offset resolved, and moved to the log start if its offset was deleted."""
    if iterator.offset == END:
        return replace(iterator, offset=partition.high_watermark)
    start = partition.log.start_offset
    return replace(iterator, offset=start) if iterator.offset == BEGINNING or iterator.offset < start else iterator


def _refused(version: int, error: MillstreamError, leader: CurrentLeader | None) -> bytes:
    fields = error_fields(error.code, error.detail)
    if leader is not None:
        fields["current_leader"] = {"leader_id": leader.leader_id, "leader_epoch": leader.leader_epoch}
        fields["node_endpoints"] = [] if leader.endpoint is None else [leader.endpoint._asdict()]
    return write_response(API, version, fields)
