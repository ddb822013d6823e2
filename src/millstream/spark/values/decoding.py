"""Values of a batch as columns, with a rule for those that are not what they should be.

A decoder reads many values in one go and says no more than that some of them are bad. Which they are is found by
halves, so that good ones, which are nearly all, cost nothing for it.
"""

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.values.options import BadValues


class Decoder(Protocol):
    """Of one format, for the fields that are wanted."""

    @property
    def type(self) -> pa.StructType: ...

    def decode(self, values: pa.Array) -> tuple[pa.StructArray, list[int] | None]:
        """The fields of at least one value, and how many rows each of these makes; None where all make one.

        A value that is null makes one row that is null. ValueError where something cannot be read.
        """


class DecodedRows(NamedTuple):
    fields: pa.StructArray
    of: pa.Array | None
    """The number of the message that each is of; None where each message makes one."""


def decode(decoder: Decoder, batch: pa.RecordBatch, bad: BadValues) -> DecodedRows:
    """The values of the SDK's messages; UNDECODABLE_VALUE, naming the place, for a bad one, if that is a failure."""
    parts = _parts(decoder, batch, bad)
    fields = parts[0][0] if len(parts) == 1 else pa.concat_arrays([each for each, _ in parts])
    if all(counts is None for _, counts in parts):
        return DecodedRows(fields, None)
    counts = [count for each, some in parts for count in some or [1] * len(each)]
    return DecodedRows(fields, pa.array(np.repeat(np.arange(len(counts)), counts)))


def _parts(decoder: Decoder, batch: pa.RecordBatch, bad: BadValues) -> list[tuple[pa.StructArray, list[int] | None]]:
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
    text = f"the value of {topic}-{partition} at offset {offset} is not what it should be: {error}"
    return MillstreamError(ErrorCode.UNDECODABLE_VALUE, f"{text}; badValues=null reads such values as nulls")
