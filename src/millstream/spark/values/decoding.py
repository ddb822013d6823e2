"""Decodes the values of a batch into columns, and applies the option `badValues` to values that cannot be decoded.

A decoder reads many values in one call, and reports only that some of them are bad. Bisection finds the bad ones, so
good values, which are nearly all, cost nothing extra.
"""

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.values.options import BadValues


class Decoder(Protocol):
    """Decodes one format into the selected fields."""

    @property
    def type(self) -> pa.StructType: ...

    def decode(self, values: pa.Array) -> tuple[pa.StructArray, list[int] | None]:
        """Returns the fields of one or more values, and how many rows each value produces (None: one each).

        A null value produces one null row. Raises ValueError if any value cannot be read.
        """


class DecodedRows(NamedTuple):
    """Decoded fields, one entry per row."""

    fields: pa.StructArray
    of: pa.Array | None
    """Index of the message that each row comes from, or None if each message produces one row."""


def decode(decoder: Decoder, batch: pa.RecordBatch, bad: BadValues) -> DecodedRows:
    """Returns the decoded values of the SDK's messages.

    Raises UNDECODABLE_VALUE, with partition and offset, for a bad value under badValues=fail.
    """
    parts = _parts(decoder, batch, bad)
    fields = parts[0][0] if len(parts) == 1 else pa.concat_arrays([each for each, _ in parts])
    if all(counts is None for _, counts in parts):
        return DecodedRows(fields, None)
    counts = [count for each, some in parts for count in some or [1] * len(each)]
    return DecodedRows(fields, pa.array(np.repeat(np.arange(len(counts)), counts)))


def _parts(decoder: Decoder, batch: pa.RecordBatch, bad: BadValues) -> list[tuple[pa.StructArray, list[int] | None]]:
    """Decodes a batch; if that fails, decodes its two halves, down to single values."""
    rows = batch.num_rows
    if not rows:
        return [(pa.nulls(0, decoder.type), None)]
    try:
        return [decoder.decode(batch.column("value"))]
    except ValueError as error:
        if rows > 1:
            halves = (batch.slice(0, rows // 2), batch.slice(rows // 2))
            return [part for half in halves for part in _parts(decoder, half, bad)]
        if bad is BadValues.FAIL:
            raise _undecodable(batch, error) from error
        return [(pa.nulls(1, decoder.type), None)]


def _undecodable(batch: pa.RecordBatch, error: ValueError) -> MillstreamError:
    topic, partition, offset = (batch.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
    text = f"the value of {topic}-{partition} at offset {offset} cannot be decoded: {error}"
    return MillstreamError(ErrorCode.UNDECODABLE_VALUE, f"{text}; set badValues=null to read it as null")
