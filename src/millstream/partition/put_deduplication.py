"""Appends the batches of Puts requests and stores each message id once (reasons: `docs/decisions/0012-message-ids.md`).

A batch without natural ids from a producer with a producer id has made ids. It is appended like any other, and the
index gets one entry for it. If the partition does not know the producer, the index is searched first. The batch may
have been stored before its producer was forgotten, or a retry may have fenced it.

A batch with natural ids is opened by a worker. The worker compares the ids with the records and searches the runs on
disk. Back on the event loop, the entries that were added to memory meanwhile are searched too, and the batch is
appended in the same step. So if two writers use the same id, one stores its message and the other gets its offset. If
any id of a batch is known, nothing of the batch is stored.

A retry under a made id is a batch of one message with that id. If the batch that the id names is not stored, the retry
is appended under the same producer id and a higher epoch. The first attempt then has an older epoch and can never be
stored. This also holds after a restart, since the log contains the retry.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset, ProducerId
from millstream.model.limits import NO_PRODUCER_ID
from millstream.model.message_id import EPOCH_MAX, MadeId, MessageId, parse_message_id
from millstream.partition.append_result import AppendResult
from millstream.partition.leadership import Leadership
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.keys import FENCED, IndexedMessage, batch_key, id_entries, id_keys
from millstream.partition.message_ids.replay import own_id
from millstream.partition.opened_batches import AppendJob, StaleInspectionError, open_checked, wants_opened
from millstream.partition.produce_rules import check_produced, read_producer, stamp_producer
from millstream.partition.runs.run import SortedRun, find_newest
from millstream.partition.watermark import Acknowledgement
from millstream.records.batch import DECODED_BYTES_MAX, decode_batch
from millstream.records.header import HEADER_BYTES, MADE_IDS, OWN_IDS, BatchHeader, Bytes, read_header
from millstream.topics.settings import TopicSettings

_NO_NUMBER = -1


class KnownIds(MillstreamError):  # noqa: N818 - named as the error that it is on the wire
    """Some ids of a batch were stored before, so nothing of the batch was stored."""

    def __init__(self, detail: str, known: list[tuple[int, int]], acknowledgement: Acknowledgement | None) -> None:
        super().__init__(ErrorCode.DUPLICATE_MESSAGE_ID, detail)
        self.known = known
        """The index of each known message in the batch, with the offset of the first copy."""
        self.acknowledgement = acknowledgement
        """Completes once the first copies are acknowledged. None if they are."""


class IdLookup(NamedTuple):
    """The result of a worker: a batch, its ids, their keys, and the values that the runs have for them."""

    records: Bytes
    ids: Sequence[MessageId]
    keys: Sequence[bytes]
    stored: Mapping[bytes, bytes]
    missing: OSError | None
    """The error of a missing run file. A merge may have replaced the run, or it is lost."""
    view: "_View"


class _View(Struct, frozen=True):
    """The state of an index when a worker began to search it."""

    id_index: IdIndex | None
    runs: Sequence[SortedRun]
    revision: int

    @classmethod
    def of(cls, index: IdIndex | None) -> "_View":
        return cls(None, (), 0) if index is None else cls(index, index.runs, index.revision)


def put_job(partition: Leadership, records: memoryview, ids: Sequence[bytes] | None) -> AppendJob | None:
    """Return the job for a batch that must be inspected first, or None if `put` can append it at once."""
    if ids is not None:
        return AppendJob(partial(_inspect, ids=ids), _append_with_ids)
    return PUT if wants_opened(partition.settings) or _needs_search(partition, records) else None


def put(partition: Leadership, records: memoryview, acks: int, *, walked: bool = False) -> AppendResult:
    """Append a batch without natural ids. Raises the errors of `Leadership.append`."""
    producer_id, epoch, _ = _producer(records)
    if producer_id < 0:
        return partition.append(records, acks, walked=walked)
    if epoch == EPOCH_MAX:
        raise MillstreamError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {EPOCH_MAX} is reserved for fencing batches with message ids; request a new producer id",
        )
    return partition.append(records, acks, ids=MADE_IDS, walked=walked)


def _producer(records: memoryview) -> tuple[ProducerId, int, int]:
    """Return producer id, epoch and sequence number. A batch that is too short has none and is refused later."""
    return read_producer(records) if len(records) >= HEADER_BYTES else (NO_PRODUCER_ID, _NO_NUMBER, _NO_NUMBER)


def _needs_search(partition: Leadership, records: memoryview) -> bool:
    """True if the index must be searched for the ids of a batch.

    That is so if the producer is unknown but the ids may be stored.
    """
    index, (producer_id, epoch, base_sequence) = partition.replica.ids, _producer(records)
    if index is None or producer_id < 0 or partition.replica.knows_producer(producer_id):
        return False
    key = batch_key(producer_id, epoch=epoch, base_sequence=base_sequence)
    return index.recent(key) is not None or index.may_be_stored(key)


# In workers


def _inspect(partition: Leadership, records: memoryview, *, ids: Sequence[bytes] | None) -> asyncio.Future[IdLookup]:
    return partition.run(partial(_open, ids=ids, view=_View.of(partition.replica.ids)), records)


def _open(
    records: memoryview, settings: TopicSettings, now_ms: int, *, ids: Sequence[bytes] | None, view: _View
) -> IdLookup:
    kind = MADE_IDS if ids is None else OWN_IDS
    header = check_produced(records, settings, now_ms, ids=kind)
    parsed = [] if ids is None else _checked_ids(records, header, ids)
    taken = open_checked(records, header, settings, now_ms)
    keys = id_keys(parsed)
    if ids is None:
        keys = [batch_key(header.producer_id, epoch=header.producer_epoch, base_sequence=header.base_sequence)]
    return _find(IdLookup(taken, parsed, keys, {}, None, view))


def _find(lookup: IdLookup) -> IdLookup:
    """Return the lookup with the values of its keys in the runs. Blocking. Raises KAFKA_STORAGE_ERROR."""
    try:
        return lookup._replace(stored=find_newest(lookup.view.runs, lookup.keys))
    except FileNotFoundError as error:
        return lookup._replace(missing=error)
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError) -> MillstreamError:
    return MillstreamError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read message ids: {error}; retry later, lost ones are rebuilt"
    )


def _checked_ids(records: memoryview, header: BatchHeader, ids: Sequence[bytes]) -> list[MessageId]:
    """Return the parsed ids. Raises INVALID_MESSAGE_ID if they are invalid or differ from those in the records."""
    if len(ids) != header.record_count:
        raise MillstreamError(
            ErrorCode.INVALID_MESSAGE_ID,
            f"{header.record_count} records have {len(ids)} message ids; send one per record",
        )
    parsed = [parse_message_id(each) for each in ids]
    if len(parsed) > 1 and any(isinstance(each, MadeId) for each in parsed):
        raise MillstreamError(
            ErrorCode.INVALID_MESSAGE_ID, "a retry under a made id must be the only message of its batch"
        )
    positions: dict[bytes, int] = {}
    for number, each in enumerate(ids):
        if positions.setdefault(each, number) != number:
            raise MillstreamError(
                ErrorCode.INVALID_MESSAGE_ID,
                f"records {positions[each]} and {number} of the batch have the same message id {each!r}",
            )
    try:
        decoded = decode_batch(records, limit_bytes=DECODED_BYTES_MAX, verify=False)
    except MillstreamError as error:
        raise MillstreamError(ErrorCode.INVALID_RECORD, error.detail) from None
    for number, (each, record) in enumerate(zip(ids, decoded, strict=True)):
        if own_id(record) != each:
            raise MillstreamError(
                ErrorCode.INVALID_MESSAGE_ID,
                f"record {number} has the message id {each!r}, but its header millstream.id is missing or differs",
            )
    return parsed


# On the event loop again


def _append_checked(partition: Leadership, lookup: IdLookup, acks: int) -> AppendResult:
    """Append a batch without natural ids, unless the index has it and its producer is unknown."""
    records = memoryview(lookup.records)
    producer_id = _producer(records)[0]
    if producer_id >= 0 and not partition.replica.knows_producer(producer_id):
        found = _search(partition, lookup, lookup.keys[0])
        if found is not None:
            return _stored_before(partition, read_header(records), found, acks)
    return put(partition, records, acks, walked=True)


PUT = AppendJob(partial(_inspect, ids=None), _append_checked)
"""The job for a batch without natural ids that cannot be appended at once."""


def _stored_before(partition: Leadership, header: BatchHeader, found: IndexedMessage, acks: int) -> AppendResult:
    if found.messages == FENCED:
        raise MillstreamError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} is fenced at epoch {header.producer_epoch}: a retry under a message id has "
            "already stored a message of this batch",
        )
    if found.messages != header.record_count:
        raise MillstreamError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} has already sent sequence {header.base_sequence} in another batch",
        )
    partition.check_writable(acks)
    return partition.duplicate(found.offset, last_offset=found.offset + found.messages - 1, acks=acks)


def _append_with_ids(partition: Leadership, lookup: IdLookup, acks: int) -> AppendResult:
    partition.check_writable(acks)
    made = lookup.ids[0] if isinstance(lookup.ids[0], MadeId) else None
    if made is not None and made.partition != partition.number:
        raise MillstreamError(
            ErrorCode.INVALID_MESSAGE_ID, f"{made} belongs to partition {made.partition}, not to {partition.number}"
        )
    partition.log.write_buffered()  # The index contains only batches that are written.
    known = _known_messages(partition, lookup)
    if known:
        last = max(offset for _, offset in known)
        acknowledgement = partition.duplicate(known[0][1], last_offset=last, acks=acks).acknowledgement
        raise KnownIds(f"{len(known)} of {len(lookup.ids)} message ids are already stored", known, acknowledgement)
    records = memoryview(lookup.records)
    if made is not None:
        _fence(partition, records, made)
    appended = partition.append(records, acks, ids=OWN_IDS, walked=True)
    if not appended.is_duplicate:
        partition.log.write_buffered()
        offsets = range(appended.base_offset, appended.base_offset + len(lookup.ids))
        partition.replica.know(id_entries(lookup.keys, offsets), Offset(appended.base_offset))
    return appended


def _known_messages(partition: Leadership, lookup: IdLookup) -> list[tuple[int, int]]:
    """Return the index in the batch and the stored offset of each message whose id is known."""
    index = partition.replica.ids
    if index is None:
        return []
    if not lookup.stored and index.has_none_recent(lookup.keys):
        _check_view(index, lookup)
        return []  # The usual case, without work per message.
    found = (
        (number, _stored_offset(partition, lookup, each, lookup.keys[number])) for number, each in enumerate(lookup.ids)
    )
    return [(number, offset) for number, offset in found if offset is not None]


def _stored_offset(partition: Leadership, lookup: IdLookup, message_id: MessageId, key: bytes) -> int | None:
    """Return the offset of the message with this id, or None if the id is unknown."""
    found = _search(partition, lookup, key)
    if found is not None:
        return found.offset
    if isinstance(message_id, MadeId):
        batch = _search(partition, lookup, lookup.keys[-1])
        if batch is not None and batch.messages != FENCED:
            if message_id.place >= batch.messages:
                raise MillstreamError(
                    ErrorCode.INVALID_MESSAGE_ID, f"{message_id}: the batch has only {batch.messages} messages"
                )
            return batch.offset + message_id.place
    return None


def _search(partition: Leadership, lookup: IdLookup, key: bytes) -> IndexedMessage | None:
    """Return the value of a key in memory or, from the worker's search, in the runs."""
    index = partition.replica.ids
    if index is None:
        return None
    value = index.recent(key)
    if value is None:
        _check_view(index, lookup)
        value = lookup.stored.get(key)
    return None if value is None else IndexedMessage.unpack(value)


def _check_view(index: IdIndex, lookup: IdLookup) -> None:
    """Raise StaleInspectionError if the runs have changed since the worker searched them."""
    view = lookup.view
    if index is not view.id_index or index.revision != view.revision:
        raise StaleInspectionError(ErrorCode.KAFKA_STORAGE_ERROR, "message ids were saved meanwhile")
    if lookup.missing is not None:
        if index.runs is view.runs:
            raise _unreadable(lookup.missing)
        raise StaleInspectionError(ErrorCode.KAFKA_STORAGE_ERROR, "message ids were merged meanwhile")


def _fence(partition: Leadership, records: memoryview, made: MadeId) -> None:
    """Give a retry with a generated id a higher producer epoch, which fences the first attempt."""
    producer_id = ProducerId(made.producer_id)
    epoch = partition.replica.producers.epoch_of(producer_id)
    if epoch is not None and epoch > made.epoch:
        # The attempt is already fenced.
        stamp_producer(records, NO_PRODUCER_ID, epoch=_NO_NUMBER, base_sequence=_NO_NUMBER)
    else:
        stamp_producer(records, producer_id, epoch=made.epoch + 1, base_sequence=0)
