"""Adds each message to the open chunk of its topic; a receipt refers to one row of a chunk.

One source runs compiled or as plain Python, like the record codec, with the same results. The only object per message
is its receipt: there is no future, lock or task per message. A chunk belongs to one topic. Any thread adds rows to it,
under the accumulator's lock. A sealed chunk takes no more rows and belongs to the event loop, which distributes its
rows over batches. A batch is settled once its outcome is final. Invariants:

- every column that exists has as many rows as the chunk;
- `held_bytes` is the size of all unsettled chunks. Only a single `put_many` that is larger than the whole buffer may
  exceed `max_bytes`;
- a row's batch is settled once, and the outcome in the row's receipt does not change afterwards.
"""

# mypy: allow-untyped-decorators, allow-any-generics, no-warn-return-any, disable-error-code=valid-type
# mypy does not know Cython's decorators and C types. Functions that other modules call have Python annotations.

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from operator import index
from typing import Any

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from millstream.records import _uncompiled as cython

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import ID_HEADER
from millstream.sdk.arguments import check_callback
from millstream.sdk.time_arguments import Time

COMPILED = cython.compiled

PARTITION_MAX = 2**31 - 1

ROW_BYTES = cython.declare(cython.Py_ssize_t, 36)  # Upper bound of a record's encoding without key, value and headers.
HEADER_BYTES = cython.declare(cython.Py_ssize_t, 10)
OBJECT_BYTES = cython.declare(cython.Py_ssize_t, 64)  # Python's memory overhead of a row, in addition to its bytes.


def as_bytes(data: Any) -> bytes | None:
    """Convert a key or value to bytes; text is encoded as UTF-8."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"keys, values and header values must be bytes, str or None, not {type(data).__name__}")


def as_number(given: Any, name: str) -> int:
    """Return a partition or hash as an int; raises TypeError for other types."""
    try:
        if type(given) is not bool:
            return index(given)
    except TypeError:
        pass
    raise TypeError(f"a {name} must be an integer, not {type(given).__name__}")


def as_partition(given: Any) -> int:
    """Return a partition number, which need not exist; raises ValueError if it is outside the protocol's range."""
    number = as_number(given, "partition")
    if abs(number) > PARTITION_MAX:
        raise ValueError(f"a partition must be at most {PARTITION_MAX}, not {number}")
    return number


def as_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    """Convert headers, given as a mapping or as pairs, to pairs of name and bytes."""
    pairs: Any = headers.items() if isinstance(headers, Mapping) else headers
    made = []
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise TypeError(f"headers must be a mapping or pairs of name and bytes, not {type(pairs).__name__}")
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"a header must be a pair of name and bytes, not {pair!r}")
        name, data = pair
        if not isinstance(name, str):
            raise TypeError(f"a header name must be str, not {type(name).__name__}")
        if name == ID_HEADER:
            raise ValueError(f"the header {ID_HEADER} is reserved for the message id; use message_id")
        made.append((name, as_bytes(data)))
    return made


def headers_size(headers: list) -> int:
    """Return an upper bound of the headers' encoded size."""
    size: cython.Py_ssize_t = 0
    for name, data in headers:
        size += HEADER_BYTES + 4 * len(name) + (0 if data is None else len(data))
    return size


@cython.final
@cython.cclass
class ProducerBatch:
    """Rows of one chunk that go to one partition together, and their outcome.

    `rows` has the row indexes in the chunk. None means the whole chunk, or with `start` >= 0 the rows in the chunk's
    `order` from `start` on. `base_offset` is -1 if the broker does not report it. The messages of a
    duplicate batch were stored before, under the same ids. A claimed batch has either a sequence
    number or an id for each row in `ids`.
    """

    chunk = cython.declare(object, visibility="public")
    partition = cython.declare(cython.Py_ssize_t, visibility="public")
    rows = cython.declare(list, visibility="public")
    start = cython.declare(cython.Py_ssize_t, visibility="public")
    count = cython.declare(cython.Py_ssize_t, visibility="public")
    held_bytes = cython.declare(cython.Py_ssize_t, visibility="public")
    is_settled = cython.declare(cython.bint, visibility="public")
    error = cython.declare(object, visibility="public")
    unseen = cython.declare(cython.Py_ssize_t, visibility="public")
    base_offset = cython.declare(cython.longlong, visibility="public")
    append_time_ms = cython.declare(cython.longlong, visibility="public")
    identity = cython.declare(object, visibility="public")
    base_sequence = cython.declare(cython.longlong, visibility="public")
    is_shown = cython.declare(cython.bint, visibility="public")
    ids = cython.declare(list, visibility="public")
    is_claimed = cython.declare(cython.bint, visibility="public")
    encoded = cython.declare(object, visibility="public")
    was_sent = cython.declare(cython.bint, visibility="public")
    in_doubt = cython.declare(cython.bint, visibility="public")
    unanswered = cython.declare(cython.bint, visibility="public")
    is_duplicate = cython.declare(cython.bint, visibility="public")

    def __init__(
        self, chunk: ProducerChunk, partition: cython.Py_ssize_t, rows: list[int] | None, held_bytes: cython.Py_ssize_t
    ) -> None:
        self.chunk = chunk
        self.partition = partition
        self.rows = rows
        self.start = -1
        self.count = chunk.count if rows is None else len(rows)
        self.held_bytes = held_bytes
        self.is_settled = False
        self.error = None
        self.unseen = 0
        self.base_offset = -1
        self.append_time_ms = -1
        self.identity = None
        self.base_sequence = -1
        self.is_shown = False
        self.ids = None
        self.is_claimed = False
        self.encoded = None
        self.was_sent = False
        self.in_doubt = False
        self.unanswered = False
        self.is_duplicate = False

    def places(self) -> Sequence[int]:
        """Return the indexes of the batch's rows in the chunk."""
        if self.rows is not None:
            return self.rows
        if self.start < 0:
            return range(self.count)
        chunk: ProducerChunk = self.chunk
        return [row - chunk.start for row in chunk.order[self.start : self.start + self.count]]


@cython.final
@cython.cclass
class ProducerChunk:
    """Rows of one topic as columns. An unused column is None. Rows of an Arrow table stay in `table`."""

    topic = cython.declare(str, visibility="readonly")
    receipt_waiters = cython.declare(object, visibility="readonly")
    options = cython.declare(object, visibility="public")
    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    size_bytes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    held_bytes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    is_sealed = cython.declare(cython.bint, visibility="readonly")
    is_hurried = cython.declare(cython.bint, visibility="public")
    values = cython.declare(list, visibility="readonly")
    keys = cython.declare(list, visibility="readonly")
    headers = cython.declare(list, visibility="readonly")
    timestamps = cython.declare(object, visibility="readonly")
    partitions = cython.declare(list, visibility="readonly")
    hashes = cython.declare(list, visibility="readonly")
    ids = cython.declare(list, visibility="public")
    has_given_ids = cython.declare(cython.bint, visibility="readonly")
    table = cython.declare(object, visibility="readonly")
    start = cython.declare(cython.Py_ssize_t, visibility="readonly")
    order = cython.declare(object, visibility="readonly")
    callbacks = cython.declare(dict, visibility="public")
    waiters = cython.declare(list, visibility="public")
    deadline = cython.declare(object, visibility="public")
    partition_count = cython.declare(cython.Py_ssize_t, visibility="public")
    unsettled = cython.declare(cython.Py_ssize_t, visibility="public")
    unencoded = cython.declare(cython.Py_ssize_t, visibility="public")
    _last_ms: Any
    _whole: ProducerBatch | None
    _ordered: list | None
    _batches: list | None
    _positions: list | None

    def __init__(self, topic: str, receipt_waiters: Any, options: Any) -> None:
        self.topic = topic
        self.receipt_waiters = receipt_waiters
        self.options = options
        self.count = self.size_bytes = self.held_bytes = 0
        self.is_sealed = self.is_hurried = self.has_given_ids = False
        self.values = []
        self.keys = self.headers = self.partitions = self.hashes = self.ids = None
        self.timestamps = []
        self.table = self.order = self.callbacks = self.waiters = self.deadline = None
        self.start = self.partition_count = self.unsettled = self.unencoded = 0
        self._last_ms = None
        self._whole = None
        self._ordered = self._batches = self._positions = None

    def fill(
        self,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        headers: list[Any] | None,
        timestamps: list[int] | int,
        partitions: list[int | None] | None,
        hashes: list[int | None] | None,
        ids: list[bytes | None] | None,
        size_bytes: cython.Py_ssize_t,
    ) -> None:
        """Fill the chunk with whole columns of the same length, and seal it."""
        for column in (keys, headers, partitions, hashes, ids, None if isinstance(timestamps, int) else timestamps):
            assert column is None or len(column) == len(values), "every column has as many rows as the chunk"
        self.values = values
        self.keys = keys
        self.headers = headers
        self.timestamps = timestamps
        self.partitions = partitions
        self.hashes = hashes
        self.ids = ids
        self.has_given_ids = ids is not None
        self.count = len(values)
        self.size_bytes = size_bytes
        self.held_bytes = size_bytes + self.count * OBJECT_BYTES
        self.is_sealed = True

    def fill_table(
        self,
        table: Any,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        size_bytes: cython.Py_ssize_t,
        partition: int | None,
    ) -> None:
        """Fill the chunk with rows of a table, all for `partition` if given, and seal it."""
        self.partitions = None if partition is None else [partition]
        self.table = table
        self.start = start
        self.count = end - start
        self.values = []
        self.size_bytes = self.held_bytes = size_bytes
        self.is_sealed = True

    @cython.cfunc
    @cython.inline
    def _add(self, value: bytes | None, key: bytes | None, time_ms: object, size: cython.Py_ssize_t) -> cython.void:
        if self._last_ms is None or time_ms != self._last_ms:
            self._last_ms = time_ms
        self.values.append(value)
        self.timestamps.append(self._last_ms)  # Rows of one millisecond share one int object.
        if key is not None or self.keys is not None:
            if self.keys is None:
                self.keys = [None] * self.count
            self.keys.append(key)
        self.count += 1
        self.size_bytes += size
        self.held_bytes += size + OBJECT_BYTES

    @cython.cfunc
    def _add_optional(self, headers: list | None, partition: object, hash: object, message_id: object) -> cython.void:
        """Add the last row's values of the columns that most chunks do not have."""
        before: cython.Py_ssize_t = self.count - 1
        if headers is not None or self.headers is not None:
            if self.headers is None:
                self.headers = [None] * before
            self.headers.append(headers)
        if partition is not None or self.partitions is not None:
            if self.partitions is None:
                self.partitions = [None] * before
            self.partitions.append(partition)
        if hash is not None or self.hashes is not None:
            if self.hashes is None:
                self.hashes = [None] * before
            self.hashes.append(hash)
        if message_id is not None or self.ids is not None:
            if self.ids is None:
                self.ids = [None] * before
            self.ids.append(message_id)
            if message_id is not None:
                self.has_given_ids = True

    @cython.cfunc
    @cython.inline
    def _has_optional(self) -> cython.bint:
        return (
            self.headers is not None or self.partitions is not None or self.hashes is not None or self.ids is not None
        )

    def is_routed(self, index: cython.Py_ssize_t) -> bool:
        """Return True if something other than its id decides the partition of a row, and always after `drop_rows`."""
        if self.values is None:
            return True
        if self.table is not None:
            return self.partitions is not None or self.table.keys is not None
        for column in (self.partitions, self.hashes, self.keys):
            if column is not None and column[index] is not None:
                return True
        return False

    def assign(self, batch: ProducerBatch) -> None:
        """Record that the rows of this batch belong to it."""
        if self._ordered is not None:
            self._map_rows()
        self._assign(batch)

    @cython.cfunc
    def _assign(self, batch: ProducerBatch) -> cython.void:
        position: cython.Py_ssize_t
        if batch.rows is None and batch.start < 0:
            self._whole = batch
            return
        rows = batch.places()
        batches: list = [self._whole] * self.count if self._batches is None else self._batches
        positions: list = list(range(self.count)) if self._positions is None else self._positions
        for position in range(batch.count):
            batches[rows[position]] = batch
            positions[rows[position]] = position
        self._batches = batches
        self._positions = positions
        self._whole = None

    def assign_ordered(self, order: Any, batches: list[ProducerBatch]) -> None:
        """Assign all rows, in the given order of a table's rows, to these batches; the mapping is computed on use."""
        self.order = order
        self._ordered = batches

    @cython.cfunc
    def _map_rows(self) -> cython.void:
        for batch in self._ordered or []:
            self._assign(batch)
        self._ordered = None  # Last: until then other threads compute the same mapping themselves.

    @cython.cfunc
    @cython.inline
    def _batch_of(self, index: cython.Py_ssize_t) -> ProducerBatch | None:
        if self._whole is not None:
            return self._whole
        if self._ordered is not None:
            self._map_rows()
        if self._batches is None:
            return None
        return self._batches[index]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _position_of(self, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return index if self._positions is None else self._positions[index]

    def place_of(self, index: int) -> tuple[ProducerBatch | None, int]:
        """Return the batch of a row, or None before it is assigned to one, and the position of the row in the batch."""
        return self._batch_of(index), self._position_of(index)

    @property
    def is_settled(self) -> bool:
        """True once the outcomes of all rows are final."""
        return self.unsettled == 0 and (
            self._whole is not None or self._ordered is not None or self._batches is not None
        )

    def batches(self) -> list[ProducerBatch]:
        """Return the batches of the chunk, in the order of their first rows."""
        if self._ordered is not None:
            return list(self._ordered)
        if self._batches is None:
            return [] if self._whole is None else [self._whole]
        return list({id(each): each for each in self._batches if each is not None}.values())

    def runs(self) -> list[tuple[Any, int, int]]:
        """Return runs of consecutive rows that are also consecutive in one batch: batch, first position, count."""
        first: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        if self._ordered is not None:
            self._map_rows()
        if self._batches is None or self._positions is None:
            return [(self._whole, 0, self.count)]
        found: list = []
        for row in range(1, self.count + 1):
            if (
                row == self.count
                or self._batches[row] is not self._batches[first]
                or self._positions[row] - self._positions[first] != row - first
            ):
                found.append((self._batches[first], self._positions[first], row - first))
                first = row
        return found

    def time_ms_of(self, index: cython.Py_ssize_t) -> int:
        """Return the timestamp of a row; -1 if it is in a table."""
        if self.table is not None:
            return -1
        return self.timestamps if isinstance(self.timestamps, int) else self.timestamps[index]

    def drop_rows(self) -> None:
        """Drop the rows after all batches are encoded. Receipts may live long and do not need them.

        Partitions and hashes are kept until all batches are settled, because rows may be distributed again.
        """
        self.values = self.keys = self.headers = None
        if self.unsettled == 0:
            self.partitions = self.hashes = None
        if self.table is not None:
            self.table = True


# PutResult and Receipt exist per message and in no lasting reference cycle, so the garbage collector ignores them.
@cython.final
@cython.no_gc
@cython.freelist(64)
@cython.cclass
class PutResult:
    """The topic, partition and offset of a stored message; `offset` is -1 if a late retry finds it stored before."""

    topic = cython.declare(str, visibility="readonly")
    partition = cython.declare(cython.Py_ssize_t, visibility="readonly")
    offset = cython.declare(cython.longlong, visibility="readonly")
    _is_duplicate: cython.bint
    _receipt: Receipt

    def __init__(
        self,
        topic: str,
        partition: cython.Py_ssize_t,
        offset: cython.longlong,
        receipt: Receipt,
        duplicate: cython.bint = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self._is_duplicate = duplicate
        self._receipt = receipt

    @property
    def duplicate(self) -> bool:
        """True if a message with this id was already stored, so that this put stored nothing.

        The first copy may come from an earlier put, or from an attempt of this put whose response was lost. `offset` is
        the offset of the first copy. Always false for puts without a `message_id`.
        """
        return self._is_duplicate

    @property
    def message_id(self) -> bytes:
        """The id of the message. A put with the same id stores nothing and returns the stored message."""
        return self._receipt.message_id

    @property
    def timestamp_ms(self) -> int:
        """The timestamp in milliseconds since 1970: the message's own, or the broker's (LogAppendTime topics)."""
        return self._receipt.timestamp_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PutResult) and (self.topic, self.partition, self.offset) == (
            other.topic,
            other.partition,
            other.offset,
        )

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        duplicate = ", duplicate=True" if self._is_duplicate else ""
        return f"PutResult(topic={self.topic!r}, partition={self.partition}, offset={self.offset}{duplicate})"


@cython.final
@cython.no_gc
@cython.freelist(64)
@cython.cclass
class Receipt:
    """The pending outcome of one put: a PutResult or an error. Usable from any thread and any event loop."""

    _chunk: ProducerChunk
    _index: cython.Py_ssize_t
    _seen: cython.bint

    def __init__(self, chunk: ProducerChunk, index: cython.Py_ssize_t) -> None:
        self._chunk = chunk
        self._index = index
        self._seen = False

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self._chunk.topic

    def done(self) -> bool:
        """True once the broker has answered, or the producer gave up and the outcome is unknown."""
        batch: ProducerBatch | None = self._chunk._batch_of(self._index)
        return batch is not None and batch.is_settled

    def result(self, timeout: Time | None = None) -> PutResult:
        """Wait until the message is stored and return its partition and offset.

        Raises TimeoutError after `timeout`; the producer continues to send the message. Raises the error of a message
        that was not stored, and OutcomeUnknownError if it may have been stored. The call blocks, so it raises
        CLIENT_MISUSED on the producer's own event loop: `await` the receipt there.
        """
        batch: ProducerBatch | None = self._chunk._batch_of(self._index)
        if batch is None or not batch.is_settled:
            self._chunk.receipt_waiters.block(self._chunk, self.done, timeout)
            batch = self._chunk._batch_of(self._index)
        return self._outcome(batch)

    def exception(self, timeout: Time | None = None) -> BaseException | None:
        """Wait like `result`, and return the error of the message; None if it is stored."""
        if not self.done():
            self._chunk.receipt_waiters.block(self._chunk, self.done, timeout)
        try:
            self._outcome(self._chunk._batch_of(self._index))
        except Exception as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, PutResult]:
        """Wait for the outcome on any event loop, without a timeout. Cancelling the wait does not cancel the put."""
        if not self.done():
            yield from self._chunk.receipt_waiters.wait(self._chunk, self.done).__await__()
        return self._outcome(self._chunk._batch_of(self._index))

    @property
    def message_id(self) -> bytes:
        """The id of the message. A retry with `put(..., message_id=receipt.message_id)` stores the message once.

        The id is available before and after the outcome. Reading it before the message is sent stores the id with the
        message, which takes an entry in the broker's index. Otherwise the id is derived from the position in the batch.
        """
        return self._chunk.receipt_waiters.message_id(self._chunk, self._index)

    @property
    def timestamp_ms(self) -> int:
        """The timestamp of the message in milliseconds since 1970; -1 if it is only in an Arrow table."""
        batch: ProducerBatch | None = self._chunk._batch_of(self._index)
        if batch is not None and batch.append_time_ms >= 0:
            return batch.append_time_ms
        return self._chunk.time_ms_of(self._index)

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call `callback(receipt)` on the producer's event loop once the receipt is done."""
        self._chunk.receipt_waiters.call_when_done(self, callback)

    @cython.cfunc
    def _outcome(self, batch: ProducerBatch) -> PutResult:
        if batch.error is not None:
            if not self._seen:
                self._seen = True
                batch.unseen -= 1
            raise batch.error.with_traceback(None)  # Many receipts share the error; a traceback would grow with each.
        offset: cython.longlong = batch.base_offset
        if offset >= 0:
            offset += self._chunk._position_of(self._index)
        return PutResult(self._chunk.topic, batch.partition, offset, self, batch.is_duplicate)

    def in_chunk(self) -> tuple[ProducerChunk, int]:
        """Return the chunk and the row index of the message."""
        return self._chunk, self._index

    def __repr__(self) -> str:
        batch: ProducerBatch | None = self._chunk._batch_of(self._index)
        state = "pending"
        if batch is not None and batch.is_settled:
            state = f"failed: {batch.error}" if batch.error is not None else repr(self._outcome(batch))
        return f"<Receipt of a message to {self._chunk.topic!r}: {state}>"


@cython.final
@cython.cclass
class Accumulator:
    """Collects messages from any thread into chunks.

    `signal` is called outside the lock when the event loop has new work. A put beyond `max_bytes` calls `make_room`
    without the lock; `make_room` waits or raises.
    """

    lock = cython.declare(object, visibility="readonly")
    held_bytes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    max_bytes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    refusal = cython.declare(object, visibility="public")
    _receipt_waiters: Any
    _options: Any
    _now_ms: Any
    _signal: Any
    _make_room: Any
    _check_topic: Any
    _chunk_bytes: cython.Py_ssize_t
    _chunk_rows: cython.Py_ssize_t
    _open: dict
    _sealed: list
    _signalled: cython.bint

    def __init__(
        self,
        lock: Any,
        receipt_waiters: Any,
        options: Any,
        now_ms: Callable[[], int],
        signal: Callable[[], object],
        make_room: Callable[[int], object],
        check_topic: Callable[[str], object],
    ) -> None:
        self.lock = lock
        self._receipt_waiters = receipt_waiters
        self._options = options
        self._now_ms = now_ms
        self._signal = signal
        self._make_room = make_room
        self._check_topic = check_topic
        self.held_bytes = 0
        self.max_bytes = options.max_bytes
        self._chunk_bytes = options.batch_bytes
        self._chunk_rows = options.batch_count
        self.refusal = None
        self._open = {}
        self._sealed = []
        self._signalled = False

    def put(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        time_ms: int | None,
        partition: Any,
        hash: Any,
        message_id: bytes | None,
        on_done: Callable[[Receipt], object] | None,
    ) -> Receipt:
        """Add a message to its topic's open chunk; raises MESSAGE_TOO_LARGE if it exceeds `max_bytes` alone."""
        size: cython.Py_ssize_t = ROW_BYTES
        index: cython.Py_ssize_t
        wake: cython.bint = False
        has_optional: cython.bint = False
        data: bytes | None = value if type(value) is bytes else as_bytes(value)
        name: bytes | None = None
        pairs: list | None = None
        chunk: ProducerChunk
        if data is not None:
            size += len(data)
        if key is not None:
            name = key if type(key) is bytes else as_bytes(key)
            if name is not None:
                size += len(name)
        if headers is not None:
            pairs = as_headers(headers) or None
            size += 0 if pairs is None else headers_size(pairs)
        if partition is not None:
            partition = as_partition(partition)
        if hash is not None:
            hash = as_number(hash, "hash")
        if pairs is not None or partition is not None or hash is not None or message_id is not None:
            has_optional = True
        if on_done is not None:
            check_callback("on_done", on_done)
        if time_ms is None:
            time_ms = self._now_ms()
        if size + OBJECT_BYTES > self.max_bytes:
            raise self._too_large(size + OBJECT_BYTES)
        self.lock.acquire()
        try:
            while self.refusal is not None or self._is_over(size + OBJECT_BYTES):
                self._unlocked_wait(size + OBJECT_BYTES)
            found = self._open.get(topic)
            chunk = self._begin(topic) if found is None else found
            index = chunk.count
            chunk._add(data, name, time_ms, size)
            if has_optional or chunk._has_optional():
                chunk._add_optional(pairs, partition, hash, message_id)
            if on_done is not None:
                if chunk.callbacks is None:
                    chunk.callbacks = {}
                chunk.callbacks[index] = [on_done]
            self.held_bytes += size + OBJECT_BYTES
            if chunk.size_bytes >= self._chunk_bytes or chunk.count >= self._chunk_rows:
                self._close(chunk)
            if not self._signalled and (index == 0 or chunk.is_sealed):
                self._signalled = wake = True
        finally:
            self.lock.release()
        if wake:
            self._signal()
        return Receipt(chunk, index)

    def put_chunks(self, chunks: list[ProducerChunk]) -> None:
        """Add chunks that are sealed already, after the open chunks of their topics."""
        size: cython.Py_ssize_t = 0
        chunk: ProducerChunk
        for chunk in chunks:
            size += chunk.held_bytes
        self.lock.acquire()
        try:
            while self.refusal is not None or self._is_over(size):
                self._unlocked_wait(size)
            for chunk in chunks:
                found = self._open.get(chunk.topic)
                if found is not None:
                    self._close(found)
                else:
                    self._check_topic(chunk.topic)
                self._sealed.append(chunk)
            self.held_bytes += size
            self._signalled = True
        finally:
            self.lock.release()
        self._signal()

    def take(self, topics: Iterable[str] | None) -> list[ProducerChunk]:
        """Seal the open chunks of `topics` (None: all) and return all sealed chunks. The next put signals again."""
        with self.lock:
            self._signalled = False
            for topic in list(self._open) if topics is None else list(topics):
                found = self._open.get(topic)
                if found is not None:
                    self._close(found)
            taken = self._sealed
            self._sealed = []
            return taken

    def open_chunks(self) -> list[ProducerChunk]:
        """Return the chunks that still take rows."""
        with self.lock:
            return list(self._open.values())

    def release(self, size_bytes: cython.Py_ssize_t) -> None:
        """Free this many bytes of the buffer."""
        with self.lock:
            self.held_bytes -= size_bytes
            assert self.held_bytes >= 0, "no more is released than was held"

    @cython.cfunc
    @cython.inline
    def _is_over(self, size: cython.Py_ssize_t) -> cython.bint:
        return self.held_bytes > 0 and self.held_bytes + size > self.max_bytes

    @cython.cfunc
    def _unlocked_wait(self, size: cython.Py_ssize_t) -> cython.void:
        if self.refusal is not None:
            raise self.refusal
        self.lock.release()
        try:
            self._make_room(size)
        finally:
            self.lock.acquire()

    @cython.cfunc
    def _too_large(self, size: cython.Py_ssize_t) -> object:
        text = f"a message of {size} bytes with overhead exceeds the producer's max_bytes={self.max_bytes}"
        return MillstreamError(ErrorCode.MESSAGE_TOO_LARGE, text)

    @cython.cfunc
    def _begin(self, topic: str) -> ProducerChunk:
        self._check_topic(topic)
        chunk: ProducerChunk = ProducerChunk(topic, self._receipt_waiters, self._options)
        self._open[topic] = chunk
        return chunk

    @cython.cfunc
    def _close(self, chunk: ProducerChunk) -> cython.void:
        """Seal the open chunk of a topic, for the event loop to take."""
        chunk.is_sealed = True
        del self._open[chunk.topic]
        self._sealed.append(chunk)


def cut(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    headers: list[Any] | None,
    limit_bytes: cython.Py_ssize_t,
    limit_rows: cython.Py_ssize_t,
) -> list[tuple[int, int, int]]:
    """Split columns into pieces (start, end, bytes) of at most these bytes and rows. A larger row is a piece alone.

    Raises TypeError unless keys and values are bytes or None.
    """
    pieces = []
    start: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = 0
    here: cython.Py_ssize_t
    index: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(values)
    for index in range(count):
        value: object = values[index]
        here = ROW_BYTES
        if value is not None:
            if type(value) is not bytes:
                raise TypeError(f"a value must be bytes, not {type(value).__name__}")
            here += len(cython.cast(bytes, value))
        if keys is not None:
            key: object = keys[index]
            if key is not None:
                if type(key) is not bytes:
                    raise TypeError(f"a key must be bytes, not {type(key).__name__}")
                here += len(cython.cast(bytes, key))
        if headers is not None and headers[index]:
            here += headers_size(headers[index])
        if index > start and (size + here > limit_bytes or index - start >= limit_rows):
            pieces.append((start, index, size))
            start = index
            size = 0
        size += here
    if count > start:
        pieces.append((start, count, size))
    return pieces
