"""Encodes numbered rows as batches, and encodes batches again with fewer rows.

This is CPU work that would block the event loop, so it runs in worker threads.
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
    """An encoded batch with rows `first` to `end` (exclusive) of its partition."""

    partition: int
    first: int
    end: int
    encoded: bytearray

    @property
    def rows(self) -> int:
        return self.end - self.first


class Numbers(NamedTuple):
    """For one partition: the number of the next row, and the number of rows that are known to be stored."""

    next: int
    stored: int


class Packer:
    """Encodes the rows of one writer, in any thread."""

    def __init__(self, identity: ProducerIdentity, options: NumberedOptions) -> None:
        self.identity = identity
        self._options = options
        self._attributes = batch_attributes(options.compression)

    def pack(
        self, parts: Sequence[pa.RecordBatch], numbers: Sequence[Numbers], *, turn: int, time_ms: int
    ) -> tuple[list[Packed], list[int]]:
        """Encode the rows that are not stored yet; returns the batches and the number of rows of each partition.

        Raises INVALID_REQUEST if the rows cannot be encoded.
        """
        try:
            whole = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
            rows = TableRows(whole, time_ms)
            order, ends = place(whole, rows.keys, count=len(numbers), turn=turn)
            packed = []
            for partition, (start, end) in enumerate(pairwise([0, *ends])):
                first, stored = numbers[partition]
                skipped = max(0, min(stored - first, end - start))
                packed += self._encode(
                    rows, order, partition=partition, start=start + skipped, end=end, number=first + skipped
                )
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"the rows cannot be encoded: {error}") from None
        return packed, [end - start for start, end in pairwise([0, *ends])]

    def rest_of(self, packed: Packed, first: int) -> list[Packed]:
        """Encode the rows of a batch from number `first` on."""
        rows = TableRows(decode_to_arrow(packed.encoded), None)
        return self._encode(
            rows, None, partition=packed.partition, start=first - packed.first, end=packed.rows, number=first
        )

    def halves(self, packed: Packed) -> list[Packed]:
        """Encode the rows of a batch as two batches."""
        rows = TableRows(decode_to_arrow(packed.encoded), None)
        middle = packed.rows // 2
        return [
            *self._encode(rows, None, partition=packed.partition, start=0, end=middle, number=packed.first),
            *self._encode(
                rows, None, partition=packed.partition, start=middle, end=packed.rows, number=packed.first + middle
            ),
        ]

    def _encode(
        self, rows: TableRows, order: Bytes | None, *, partition: int, start: int, end: int, number: int
    ) -> list[Packed]:
        options = self._options
        if number + (end - start) > SEQUENCE_MASK:
            text = f"partition {partition} would get more than {SEQUENCE_MASK} rows of one epoch; make the task smaller"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
        made = []
        while start < end:
            header = rows.header(
                self._attributes,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=number,
            )
            encoded, count = rows.encode(
                start, end=end, header=header, batch_bytes=options.batch_bytes, level=options.level, order=order
            )
            made.append(Packed(partition, number, number + count, encoded))
            start += count
            number += count
        return made
