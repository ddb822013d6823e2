"""Rows as encoded batches, each with the number of its first row; and such batches anew, with fewer rows.

What is done here holds an event loop, and is done in workers.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.arrow import TableRows, decode_to_arrow
from millstream.records.batch import batch_attributes
from millstream.records.header import SEQUENCE_MASK, Bytes
from millstream.sdk.numbered.options import NumberedOptions
from millstream.sdk.numbered.row_placement import place
from millstream.sdk.responses import ProducerIdentity


class Packed(NamedTuple):
    """A batch of the rows from number `first` on, before `end`, of its partition."""

    partition: int
    first: int
    end: int
    encoded: bytearray

    @property
    def rows(self) -> int:
        return self.end - self.first


class Numbers(NamedTuple):
    """Of one partition: what number its next row has, and how many rows it is known to have stored already."""

    next: int
    stored: int


class Packer:
    """One writer's; used in any thread."""

    def __init__(self, identity: ProducerIdentity, options: NumberedOptions) -> None:
        self.identity = identity
        self._options = options
        self._attributes = batch_attributes(options.compression)

    def pack(
        self, parts: Sequence[pa.RecordBatch], numbers: Sequence[Numbers], turn: int, time_ms: int
    ) -> tuple[list[Packed], list[int]]:
        """The batches of these rows but for those that are stored, and how many rows each partition was given.

        INVALID_REQUEST when they cannot be encoded.
        """
        try:
            whole = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
            rows = TableRows(whole, time_ms)
            order, ends = place(whole, rows.keys, len(numbers), turn)
            packed = []
            for partition, (start, end) in enumerate(pairwise([0, *ends])):
                first, stored = numbers[partition]
                skipped = max(0, min(stored - first, end - start))
                packed += self._encode(rows, order, partition, start + skipped, end, first + skipped)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"the rows cannot be written: {error}") from None
        return packed, [end - start for start, end in pairwise([0, *ends])]

    def behind(self, packed: Packed, first: int) -> list[Packed]:
        """What is left of a batch without its rows before number `first`."""
        rows = TableRows(decode_to_arrow(packed.encoded), None)
        return self._encode(rows, None, packed.partition, first - packed.first, packed.rows, first)

    def halves(self, packed: Packed) -> list[Packed]:
        """The same rows in two batches."""
        rows = TableRows(decode_to_arrow(packed.encoded), None)
        middle = packed.rows // 2
        return [
            *self._encode(rows, None, packed.partition, 0, middle, packed.first),
            *self._encode(rows, None, packed.partition, middle, packed.rows, packed.first + middle),
        ]

    def _encode(
        self, rows: TableRows, order: Bytes | None, partition: int, start: int, end: int, number: int
    ) -> list[Packed]:
        options = self._options
        if number + (end - start) > SEQUENCE_MASK:
            text = f"partition {partition} would get more than {SEQUENCE_MASK} rows of one epoch; make the task smaller"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
        made = []
        while start < end:
            header = rows.header(self._attributes, *self.identity, number)
            encoded, count = rows.encode(start, end, header, options.batch_bytes, options.level, order)
            made.append(Packed(partition, number, number + count, encoded))
            start += count
            number += count
        return made
