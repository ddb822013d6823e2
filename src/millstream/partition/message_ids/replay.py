"""Rebuilds message ids from the log: generated ids from batch headers, natural ids from the records."""

from collections.abc import Iterable
from contextlib import suppress
from typing import cast

from millstream.model.errors import MillstreamError
from millstream.model.ids import Offset
from millstream.model.message_id import ID_HEADER, MessageId, parse_message_id
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.keys import batch_entry, id_entries, id_keys
from millstream.partition.runs.layout import Entry
from millstream.records.batch import decode_batch
from millstream.records.header import ANY_IDS, OWN_IDS, BatchHeader
from millstream.records.record import Record
from millstream.storage.log.log import Log


def own_id(record: Record) -> bytes | None:
    """Return the id that a message was stored under, or None if it has no id header or more than one."""
    ids = [value for name, value in record.headers if name == ID_HEADER]
    return ids[0] if len(ids) == 1 else None


def replay(index: IdIndex, log: Log, header: BatchHeader, now_ms: int) -> None:
    """Add the ids of a stored batch to the index. Blocking. Raises OSError and the errors of a log read."""
    if header.next_offset <= index.covered:
        return
    index.add(entries_of(log, header), now_ms)
    if index.is_full:
        index.spill(now_ms, covered=header.next_offset)


def entries_from(log: Log, offset: Offset, *, entries_max: int) -> tuple[list[Entry], Offset]:
    """Return the entries of the batches from `offset` on, and the offset where they end.

    Stops after the batch that reaches `entries_max`. Blocking. Raises OSError and the errors of a log read.
    """
    entries: list[Entry] = []
    end = max(offset, log.start_offset)
    for header in log.scan.headers_from(end):
        if header.attributes & ANY_IDS:
            entries += entries_of(log, header)
        end = Offset(header.next_offset)
        if len(entries) >= entries_max:
            break
    return entries, end


def entries_of(log: Log, header: BatchHeader) -> Iterable[Entry]:
    """Return the entries of a stored batch. Blocking. Raises OSError and the errors of a log read."""
    if not header.attributes & OWN_IDS:
        return [batch_entry(header)]
    found = log.reader.read(
        Offset(max(header.base_offset, log.start_offset)),
        max_bytes=header.size_bytes,
        end_offset=Offset(header.next_offset),
        cold=True,
    )
    assert found is not None, "a cold read waits for the disk, so it returns data"
    batch = cast(bytes, found[0])
    ids: list[MessageId] = []
    offsets: list[int] = []
    for record in decode_batch(batch, verify=False):
        with suppress(MillstreamError):  # Only a foreign program could have stored an invalid id.
            ids.append(parse_message_id(own_id(record) or b""))
            offsets.append(record.offset)
    return id_entries(id_keys(ids), offsets)
