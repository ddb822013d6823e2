"""Batches that come by Puts: stored under ids, once each (`docs/decisions/0012-message-ids.md` has the reasons).

Without ids of their own, messages of a numbered producer have made ones, and the batch is appended like any other; the
index gets one entry for it. Only where the partition does not know the producer, the index is asked first: the batch
may have been stored before it was forgotten, or a retry may have fenced it.

With ids of their own, the batch is opened by a worker, which holds the ids against the records and looks into the runs
on disk. Back on the event loop, what came into memory meanwhile is looked at too, and the batch is appended in the same
step; so of two writers with the same id, one stores and the other is told where. Nothing of a batch is stored when any
of its ids is known.

A retry of a made id is a batch of one message under that id. If the batch that the id names is not there, the retry is
appended under the same producer id and a higher epoch, which keeps the first attempt from ever being stored: it has an
older epoch from then on, here and, since all of that is in the log, after a restart.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import NO_PRODUCER_ID
from millstream.model.message_id import EPOCH_MAX, MadeId, MessageId, parse_message_id
from millstream.partition.append_result import AppendResult
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.keys import FENCED, IndexedMessage, batch_key, id_entries, id_keys
from millstream.partition.message_ids.replay import own_id
from millstream.partition.message_ids.run import IdRun
from millstream.partition.opened_batches import AppendJob, StaleInspectionError, open_produced, wants_opened
from millstream.partition.partition import Partition
from millstream.partition.produce_rules import check_produced, read_producer, stamp_producer
from millstream.records.batch import DECODED_BYTES_MAX, decode_batch
from millstream.records.header import HEADER_BYTES, MADE_IDS, OWN_IDS, BatchHeader, Bytes, read_header
from millstream.storage.flush.flush_round import FlushRound
from millstream.topics.settings import TopicSettings

_NO_NUMBER = -1


class KnownIds(MillstreamError):  # noqa: N818 - named as the error that it is on the wire
    """Messages of some of these ids were stored before, so none of the batch was."""

    def __init__(self, detail: str, known: list[tuple[int, int]], committed: FlushRound | None) -> None:
        super().__init__(ErrorCode.DUPLICATE_MESSAGE_ID, detail)
        self.known = known
        """The places in the batch of those that are known, each with the offset of the first copy."""
        self.committed = committed
        """When the first copies are durable, unless they are already."""


class IdLookup(NamedTuple):
    """What a worker has found out about a batch: the keys of its ids, and where the runs have them."""

    records: Bytes
    ids: Sequence[MessageId]
    keys: Sequence[bytes]
    stored: Mapping[bytes, IndexedMessage]
    missing: OSError | None
    """A run was not there: another index may have taken its place, or it is lost."""
    view: "_View"


class _View(NamedTuple):
    """An index as it was when a worker began to look into it."""

    known: IdIndex | None
    runs: Sequence[IdRun]
    added: int

    @classmethod
    def of(cls, index: IdIndex | None) -> "_View":
        return cls(None, (), 0) if index is None else cls(index, index.runs, index.added)


def put_job(partition: Partition, records: memoryview, ids: Sequence[bytes] | None) -> AppendJob | None:
    """How to append a batch that must be looked at first; None when it can be appended at once, see `put`."""
    if ids is not None:
        return AppendJob(partial(_look, ids=ids), _append_with_ids)
    return PUT if wants_opened(partition.settings) or _is_a_strangers(partition, records) else None


def put(partition: Partition, records: memoryview, acks: int) -> AppendResult:
    """As `Partition.append`, for a batch without ids of its own."""
    producer_id, epoch, _ = _producer(records)
    if producer_id < 0:
        return partition.append(records, acks)
    if epoch == EPOCH_MAX:
        raise MillstreamError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {EPOCH_MAX} is kept for fencing batches with message ids: take a new producer id",
        )
    return partition.append(records, acks, MADE_IDS)


def _producer(records: memoryview) -> tuple[int, int, int]:
    """Producer id, epoch and sequence; what is too short to have them is refused elsewhere."""
    return read_producer(records) if len(records) >= HEADER_BYTES else (NO_PRODUCER_ID, _NO_NUMBER, _NO_NUMBER)


def _is_a_strangers(partition: Partition, records: memoryview) -> bool:
    """Whether the index has to be asked about a batch: its producer is not known here, but its ids may be."""
    index, producer = partition.ids, _producer(records)
    if index is None or producer[0] < 0 or partition.knows_producer(producer[0]):
        return False
    key = batch_key(*producer)
    return index.recent(key) is not None or index.may_be_stored(key)


# In workers.


def _look(partition: Partition, records: memoryview, *, ids: Sequence[bytes] | None) -> asyncio.Future[IdLookup]:
    return partition.run(partial(_open, ids=ids, view=_View.of(partition.ids)), records)


def _open(
    records: memoryview, settings: TopicSettings, now_ms: int, *, ids: Sequence[bytes] | None, view: _View
) -> IdLookup:
    kind = MADE_IDS if ids is None else OWN_IDS
    header = check_produced(records, settings, now_ms, kind)
    parsed = [] if ids is None else _checked_ids(records, header, ids)
    taken = open_produced(records, settings, now_ms, kind) if wants_opened(settings) else records
    keys = id_keys(parsed)
    if ids is None:
        keys = [batch_key(header.producer_id, header.producer_epoch, header.base_sequence)]
    return _find(IdLookup(taken, parsed, keys, {}, None, view))


def _find(looked: IdLookup) -> IdLookup:
    """With what the runs have of its keys. Blocking; KAFKA_STORAGE_ERROR when they cannot be read."""
    newest_first = tuple(reversed(looked.view.runs))
    found = {}
    try:
        for key in looked.keys:
            for run in newest_first:
                place = run.find(key)
                if place is not None:
                    found[key] = place
                    break
    except FileNotFoundError as error:
        return looked._replace(missing=error)
    except OSError as error:
        raise _unreadable(error) from None
    return looked._replace(stored=found)


def _unreadable(error: OSError) -> MillstreamError:
    return MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, f"message ids cannot be read: {error}")


def _checked_ids(records: memoryview, header: BatchHeader, ids: Sequence[bytes]) -> list[MessageId]:
    """The ids taken apart; INVALID_MESSAGE_ID when they are not what the records say, or cannot be stored so."""
    if len(ids) != header.record_count:
        raise MillstreamError(
            ErrorCode.INVALID_MESSAGE_ID, f"{header.record_count} records have {len(ids)} message ids; each needs one"
        )
    parsed = [parse_message_id(each) for each in ids]
    if len(parsed) > 1 and any(isinstance(each, MadeId) for each in parsed):
        raise MillstreamError(ErrorCode.INVALID_MESSAGE_ID, "a made id is retried in a batch of its own")
    places: dict[bytes, int] = {}
    for place, each in enumerate(ids):
        if places.setdefault(each, place) != place:
            raise MillstreamError(
                ErrorCode.INVALID_MESSAGE_ID,
                f"records {places[each]} and {place} of the batch have the same message id {each!r}",
            )
    try:
        decoded = decode_batch(records, limit_bytes=DECODED_BYTES_MAX, verify=False)
    except MillstreamError as error:
        raise MillstreamError(ErrorCode.INVALID_RECORD, error.detail) from None
    for place, (each, record) in enumerate(zip(ids, decoded, strict=True)):
        if own_id(record) != each:
            raise MillstreamError(
                ErrorCode.INVALID_MESSAGE_ID,
                f"record {place} has the message id {each!r}, which its one header millstream.id must have as well",
            )
    return parsed


# Back on the event loop.


def _append_checked(partition: Partition, looked: IdLookup, acks: int) -> AppendResult:
    """A batch without ids of its own, of a producer that was not known."""
    records = memoryview(looked.records)
    producer_id = _producer(records)[0]
    if producer_id >= 0 and not partition.knows_producer(producer_id):
        place = _place(partition, looked, looked.keys[0])
        if place is not None:
            return _stored_before(partition, read_header(records), place, acks)
    return put(partition, records, acks)


PUT = AppendJob(partial(_look, ids=None), _append_checked)
"""How a batch without ids of its own is appended, where it cannot be at once."""


def _stored_before(partition: Partition, header: BatchHeader, place: IndexedMessage, acks: int) -> AppendResult:
    if place.messages == FENCED:
        raise MillstreamError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} was fenced at epoch {header.producer_epoch}: a message of this batch was "
            "stored by a retry of its id",
        )
    if place.messages != header.record_count:
        raise MillstreamError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} has sent sequence {header.base_sequence} before, in another batch",
        )
    partition.check_writable(acks)
    return partition.duplicate(place.offset, place.offset + place.messages - 1, acks)


def _append_with_ids(partition: Partition, looked: IdLookup, acks: int) -> AppendResult:
    partition.check_writable(acks)
    made = looked.ids[0] if isinstance(looked.ids[0], MadeId) else None
    if made is not None and made.partition != partition.number:
        raise MillstreamError(
            ErrorCode.INVALID_MESSAGE_ID, f"{made} belongs to partition {made.partition}, not to {partition.number}"
        )
    partition.log.write_buffer.write()  # Then the index knows all that was appended.
    known = _known(partition, looked)
    if known:
        last = max(offset for _, offset in known)
        committed = partition.duplicate(known[0][1], last, acks).committed
        raise KnownIds(f"{len(known)} of {len(looked.ids)} message ids are known", known, committed)
    records = memoryview(looked.records)
    if made is not None:
        _fence(partition, records, made)
    appended = partition.append(records, acks, OWN_IDS)
    if not appended.duplicate:
        partition.log.write_buffer.write()
        offsets = range(appended.base_offset, appended.base_offset + len(looked.ids))
        partition.know(id_entries(looked.keys, offsets), appended.base_offset)
    return appended


def _known(partition: Partition, looked: IdLookup) -> list[tuple[int, int]]:
    """Which of the ids are known, by their places in the batch, and the offsets that they have."""
    index = partition.ids
    if index is None:
        return []
    if not looked.stored and index.has_none_recent(looked.keys):
        _check_view(index, looked)
        return []  # Nearly always, and then nothing is done for each message.
    places = ((place, _offset_of(partition, looked, each, looked.keys[place])) for place, each in enumerate(looked.ids))
    return [(place, offset) for place, offset in places if offset is not None]


def _offset_of(partition: Partition, looked: IdLookup, message_id: MessageId, key: bytes) -> int | None:
    """Where the message of an id is; None when it is not known."""
    place = _place(partition, looked, key)
    if place is not None:
        return place.offset
    if isinstance(message_id, MadeId):
        batch = _place(partition, looked, looked.keys[-1])
        if batch is not None and batch.messages != FENCED:
            if message_id.place >= batch.messages:
                raise MillstreamError(
                    ErrorCode.INVALID_MESSAGE_ID, f"{message_id}: that batch had {batch.messages} messages"
                )
            return batch.offset + message_id.place
    return None


def _place(partition: Partition, looked: IdLookup, key: bytes) -> IndexedMessage | None:
    """What memory or, as a worker saw them, the runs have of a key."""
    index = partition.ids
    if index is None:
        return None
    recent = index.recent(key)
    if recent is None:
        _check_view(index, looked)
        return looked.stored.get(key)
    return recent


def _check_view(index: IdIndex, looked: IdLookup) -> None:
    """StaleInspectionError when the runs have changed since a worker looked into them."""
    view = looked.view
    if index is not view.known or index.added != view.added:
        raise StaleInspectionError(ErrorCode.KAFKA_STORAGE_ERROR, "message ids were saved meanwhile")
    if looked.missing is not None:
        if index.runs is view.runs:
            raise _unreadable(looked.missing)
        raise StaleInspectionError(ErrorCode.KAFKA_STORAGE_ERROR, "message ids were written anew meanwhile")


def _fence(partition: Partition, records: memoryview, made: MadeId) -> None:
    """Have the retry of a made id take the place of the attempt that it repeats."""
    epoch = partition.producer_epoch(made.producer_id)
    if epoch is not None and epoch > made.epoch:
        stamp_producer(records, NO_PRODUCER_ID, _NO_NUMBER, _NO_NUMBER)  # The attempt is fenced already.
    else:
        stamp_producer(records, made.producer_id, made.epoch + 1, 0)
