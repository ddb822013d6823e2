"""Implements put_many: splits many messages into sealed chunks, with one receipt for all of them."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, overload

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import MadeId
from millstream.sdk.arguments import check_callback
from millstream.sdk.producing.chunk import (
    ProducerBatch,
    ProducerChunk,
    PutResult,
    Receipt,
    as_bytes,
    as_headers,
    as_number,
    as_partition,
    cut,
)
from millstream.sdk.producing.failures import UnstoredError
from millstream.sdk.producing.message_ids import as_column
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.producing.receipt_waiters import ReceiptWaiters, call
from millstream.sdk.time_arguments import Time


def chunks_of(
    topic: str,
    receipt_waiters: ReceiptWaiters,
    options: ProducerSettings,
    values: Iterable[Any],
    *,
    keys: Iterable[Any] | None,
    headers: Iterable[Any] | None,
    timestamps_ms: Sequence[int] | int,
    partition: Sequence[int | None] | int | None,
    hashes: Sequence[int | None] | None,
    ids: Sequence[bytes | None] | None,
) -> list[ProducerChunk]:
    """Return messages as sealed chunks; raises INVALID_REQUEST for unequal columns, TypeError for a single value."""
    if isinstance(values, str | bytes | bytearray | memoryview):
        raise TypeError("put_many needs a sequence of values, for example a list; use put for one value")
    column = as_column(values, "values")
    count = len(column)
    key_column = None if keys is None else as_column(keys, "keys")
    header_column = None if headers is None else list(map(_headers, as_column(headers, "headers")))
    partitions = _partitions(partition, count)
    hash_column = None if hashes is None else list(map(_hash, as_column(hashes, "hashes")))
    columns = {
        "keys": key_column,
        "headers": header_column,
        "timestamps": None if isinstance(timestamps_ms, int) else timestamps_ms,
        "partitions": partitions,
        "hashes": hash_column,
        "message_ids": ids,
    }
    for name, other in columns.items():
        if other is not None and len(other) != count:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"there are {count} values but {len(other)} {name}")
    try:
        pieces = cut(column, key_column, header_column, options.batch_bytes, options.batch_count)
    except TypeError:
        column = [as_bytes(each) for each in column]
        key_column = None if key_column is None else [as_bytes(each) for each in key_column]
        pieces = cut(column, key_column, header_column, options.batch_bytes, options.batch_count)
    chunks = []
    for start, end, size_bytes in pieces:
        chunk = ProducerChunk(topic, receipt_waiters, options)
        chunk.fill(
            column if end - start == count else column[start:end],
            _part(key_column, start=start, end=end),
            _part(header_column, start=start, end=end),
            timestamps_ms if isinstance(timestamps_ms, int) else list(timestamps_ms[start:end]),
            _part(partitions, start=start, end=end),
            _part(hash_column, start=start, end=end),
            _part(ids, start=start, end=end),
            size_bytes,
        )
        chunks.append(chunk)
    return chunks


def is_table(values: object) -> bool:
    """Return True if `values` is an Arrow table or record batch. Does not import PyArrow."""
    return type(values).__module__.partition(".")[0] == "pyarrow" and hasattr(values, "num_rows")


def table_chunks(
    topic: str,
    receipt_waiters: ReceiptWaiters,
    options: ProducerSettings,
    table: Any,
    *,
    timestamps_ms: Any,
    partition: Any,
    **columns: Any,
) -> list[ProducerChunk]:
    """Return the rows of a table as sealed chunks; raises INVALID_REQUEST for extra columns and unsuitable tables."""
    from millstream.records.arrow import TableRows

    given = [name for name, column in columns.items() if column is not None]
    if given or not isinstance(timestamps_ms, int) or not (partition is None or isinstance(partition, int)):
        text = "a table has its own columns (key, value, headers, timestamp); do not pass them as arguments too"
        raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
    try:
        rows = TableRows(table, timestamps_ms)
    except (TypeError, ValueError) as error:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, f"the table cannot be put: {error}") from None
    chunks = []
    for start, end, size_bytes in rows.cut(options.batch_bytes, limit_rows=options.batch_count):
        chunk = ProducerChunk(topic, receipt_waiters, options)
        chunk.fill_table(rows, start, end, size_bytes, partition)
        chunks.append(chunk)
    return chunks


def _partitions(given: Sequence[int | None] | int | None, count: int) -> list[int | None] | None:
    if given is None:
        return None
    if isinstance(given, Sequence):
        return [each if each is None else as_partition(each) for each in as_column(given, "partitions")]
    return [as_partition(given)] * count


def _headers(given: Any) -> list[tuple[str, bytes | None]] | None:
    return None if given is None else as_headers(given) or None


def _hash(given: Any) -> int | None:
    return None if given is None else as_number(given, "hash")


def _part(column: Sequence[Any] | None, *, start: int, end: int) -> list[Any] | None:
    return None if column is None else list(column[start:end])


class PutResults(Sequence[PutResult]):
    """The results of a `put_many`, in the order of its messages. `partitions` and `offsets` are arrays."""

    def __init__(self, receipts: "Receipts") -> None:
        self._receipts = receipts

    def __len__(self) -> int:
        return len(self._receipts)

    @overload
    def __getitem__(self, index: int) -> PutResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[PutResult]: ...
    def __getitem__(self, index: int | slice) -> PutResult | list[PutResult]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        return self._receipts[index].result(0)

    @property
    def partitions(self) -> "array[int]":
        """The partition of each message."""
        found = array("i")
        for batch, position, count in self._receipts.runs():
            found.extend([batch.partition] * count)
            del position
        return found

    @property
    def offsets(self) -> "array[int]":
        """The offset of each message; -1 if the broker does not report it."""
        found = array("q")
        for batch, position, count in self._receipts.runs():
            base = batch.base_offset
            found.extend([-1] * count if base < 0 else range(base + position, base + position + count))
        return found

    @property
    def duplicates(self) -> list[bool]:
        """For each message, True if it was already stored under its id; see `PutResult.duplicate`."""
        found: list[bool] = []
        for batch, position, count in self._receipts.runs():
            found += [batch.is_duplicate] * count
            del position
        return found

    @property
    def message_ids(self) -> list[bytes]:
        """The id of each message."""
        found: list[bytes] = []
        for batch, position, count in self._receipts.runs():
            if batch.ids is not None:
                found += batch.ids[position : position + count]
            elif batch.base_sequence >= 0:
                producer_id, epoch = batch.identity
                first = MadeId(producer_id, epoch, batch.partition, batch.base_sequence, 0).encode()[:-1]
                found += [b"%b%d" % (first, place) for place in range(position, position + count)]
            else:
                found += [self._receipts[row].message_id for row in range(len(found), len(found) + count)]
        return found

    def __repr__(self) -> str:
        return f"<PutResults of {len(self)} messages>"


class Receipts:
    """The pending outcomes of a `put_many`. It works like a `Receipt`; indexing returns the receipt of one message."""

    def __init__(self, topic: str, receipt_waiters: ReceiptWaiters, chunks: Sequence[ProducerChunk]) -> None:
        self.topic = topic
        self._receipt_waiters = receipt_waiters
        self._chunks = tuple(chunks)
        self._ends = list(accumulate(chunk.count for chunk in chunks))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Receipt:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is out of range: there are {len(self)} receipts")
        number = bisect_right(self._ends, index)
        return Receipt(self._chunks[number], index - (self._ends[number - 1] if number else 0))

    def __iter__(self) -> Iterator[Receipt]:
        return (Receipt(chunk, row) for chunk in self._chunks for row in range(chunk.count))

    def done(self) -> bool:
        """Return True once the outcomes of all messages are final."""
        return all(chunk.is_settled for chunk in self._chunks)

    def result(self, timeout: Time | None = None) -> PutResults:
        """Wait until all messages are stored and return their results; see `Receipt.result`.

        Raises UnstoredError, with the number of unconfirmed messages, unless all are stored.
        """
        left = [chunk for chunk in self._chunks if not chunk.is_settled]
        if left:
            self._receipt_waiters.block_for_all(left, timeout)
        return self._outcome()

    def exception(self, timeout: Time | None = None) -> BaseException | None:
        """Wait like `result`, and return its UnstoredError; None if all messages are stored."""
        try:
            self.result(timeout)
        except UnstoredError as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, PutResults]:
        """Wait for all outcomes on any event loop, without a timeout."""
        for chunk in self._chunks:
            if not chunk.is_settled:
                yield from self._receipt_waiters.wait(chunk, partial(getattr, chunk, "is_settled")).__await__()
        return self._outcome()

    def add_done_callback(self, callback: "Callable[[Receipts], object]") -> None:
        """Call `callback(receipts)` once, on the producer's event loop, when all outcomes are final."""
        check_callback("callback", callback)
        left = len(self._chunks)

        def count_down() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                call(callback, self)

        if not left:
            self._receipt_waiters.call_soon(count_down)
        for chunk in self._chunks:
            self._receipt_waiters.call_when_settled(chunk, count_down)

    def runs(self) -> Iterator[tuple[ProducerBatch, int, int]]:
        """Return runs of consecutive messages that are consecutive in one batch: batch, first position, count."""
        for chunk in self._chunks:
            yield from chunk.runs()

    def _outcome(self) -> PutResults:
        failed = [batch for chunk in self._chunks for batch in chunk.batches() if batch.error is not None]
        if failed:
            for batch in failed:
                batch.unseen = 0
            raise UnstoredError([(batch.count, batch.error) for batch in failed])
        return PutResults(self)

    def __repr__(self) -> str:
        settled = sum(chunk.count for chunk in self._chunks if chunk.is_settled)
        return f"<Receipts of {len(self)} messages to {self.topic!r}: {settled} done>"
