"""From stored batches to the messages a reader asked for."""

from typing import NamedTuple

from penstock.records.batch import decode_batches
from penstock.records.header import each_batch
from penstock.records.record import Record
from penstock.sdk.answers import FetchedBatches


class Fetched(NamedTuple):
    """Messages from the position asked for on, and where to go on reading.

    `next_offset` may be further than the last message's: places of removed messages and of marks hold none.
    """

    records: list[Record]
    next_offset: int
    high_watermark: int
    log_start_offset: int


def read_batches(answer: FetchedBatches, offset: int) -> Fetched:
    """Open the batches; a damaged one raises CORRUPT_MESSAGE. The first may begin before `offset`; that part is cut."""
    next_offset = offset
    for _, header in each_batch(answer.batches):
        next_offset = max(next_offset, header.next_offset)
    records = decode_batches(answer.batches)
    if records and records[0].offset < offset:
        records = [record for record in records if record.offset >= offset]
    return Fetched(records, next_offset, answer.high_watermark, answer.log_start_offset)
