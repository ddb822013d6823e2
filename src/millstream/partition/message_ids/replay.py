"""Message ids as the log has them: from batch headers where they are made ones, from the records where they are not."""

from collections.abc import Iterable
from contextlib import suppress

from millstream.model.errors import MillstreamError
from millstream.model.message_id import ID_HEADER, MessageId, parse_message_id
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.keys import Entry, batch_entry, id_entries, id_keys
from millstream.records.batch import decode_batch
from millstream.records.header import OWN_IDS, BatchHeader
from millstream.records.record import Record
from millstream.storage.log.log import Log


def own_id(record: Record) -> bytes | None:
    """The id that a message was stored under; None when it says none, or says more than one."""
    ids = [value for name, value in record.headers if name == ID_HEADER]
    return ids[0] if len(ids) == 1 else None


def replay(index: IdIndex, log: Log, header: BatchHeader, now_ms: int) -> None:
    """Have the index know the ids of a stored batch. Blocking; raises OSError and what reading the log raises."""
    if header.next_offset <= index.covered:
        return
    index.add(_entries(log, header), now_ms)
    if index.is_full:
        index.spill(now_ms, header.next_offset)


def _entries(log: Log, header: BatchHeader) -> Iterable[Entry]:
    if not header.attributes & OWN_IDS:
        return [batch_entry(header)]
    batch = log.read_cold(max(header.base_offset, log.start_offset), header.size_bytes, header.next_offset)
    ids: list[MessageId] = []
    offsets: list[int] = []
    for record in decode_batch(batch, verify=False):
        with suppress(MillstreamError):  # Whatever is stored was looked at, unless another program wrote it.
            ids.append(parse_message_id(own_id(record) or b""))
            offsets.append(record.offset)
    return id_entries(id_keys(ids), offsets)
