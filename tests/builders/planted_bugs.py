"""Plants plausible bugs of a storage engine for the duration of a test.

A simulation that does not find these bugs would not find real ones either.
"""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from millstream.coordination.reply_queue import ReplyQueue
from millstream.groups.commands import Command
from millstream.groups.effects import GroupEffects, GroupNotice
from millstream.groups.responses import Answer
from millstream.model.ids import Offset
from millstream.model.limits import NO_PRODUCER_ID
from millstream.model.message_id import MadeId
from millstream.partition import derived_state, put_deduplication
from millstream.partition.leadership import Leadership
from millstream.partition.produce_rules import stamp_producer
from millstream.partition.watermark import Acknowledgement, Watermark
from millstream.records.header import BatchHeader
from millstream.storage.cleaning import rewriting
from millstream.storage.log import sparse_index as index_files
from millstream.storage.log.segment import INDEX_SUFFIX, SEGMENT_SUFFIX, Segment, SegmentState, segment_name
from millstream.storage.log.sparse_index import SparseIndex
from millstream.storage.recovery import log_recovery


def plant_acknowledge_before_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledge without waiting for the requested flush."""

    def acknowledge(watermark: Watermark, offset: int, acks: int) -> Acknowledgement:
        watermark.advance(own_flushed=Offset(offset + 1), high_watermark=Offset(offset + 1))
        acknowledgement = Acknowledgement(offset)
        acknowledgement.wake()
        return acknowledgement

    monkeypatch.setattr(Watermark, "acknowledge", acknowledge)


def plant_commit_before_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let groups answer when their records are written, not when they are durable."""
    really_put = ReplyQueue.put

    def put(queue: ReplyQueue[Command, Answer, GroupNotice], effects: GroupEffects) -> None:
        really_put(queue, replace(effects, records=[], replies_at_once=True))

    monkeypatch.setattr(ReplyQueue, "put", put)


def plant_exchange_before_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace old segments by a compacted one before it is on stable storage."""
    monkeypatch.setattr(rewriting._Output, "finish", rewriting._Output._write)


def plant_index_before_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a batch's index entry before the batch, and let recovery trust the index."""
    really_append = Segment.append
    really_recover = log_recovery._Walk._segment
    indexes: dict[str, SparseIndex] = {}

    def append(segment: Segment, batches: memoryview, headers: Sequence[BatchHeader]) -> None:
        path = segment.path.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
        index = indexes.get(path)
        if index is None or segment.size_bytes == 0:
            index = indexes[path] = SparseIndex(segment.base_offset, start=0, interval_bytes=1)
        if segment.size_bytes >= index.due:
            index.add(segment.next_offset, position=segment.size_bytes, time_before=segment.max_timestamp)
        encoded = index.encode(segment.size_bytes)
        assert encoded is not None
        file = segment._files.disk.open(path, create=True)
        file.write(encoded, 0)
        file.flush()
        segment._files.disk.flush_directory(path.rpartition("/")[0])
        really_append(segment, batches, headers)

    def recover(walk: log_recovery._Walk, state: SegmentState) -> SegmentState:
        name = segment_name(state.base_offset).removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
        path = f"{walk._path}/{name}"
        if walk._disk.exists(path):
            file = walk._disk.open(path)
            found = index_files.decode(file.read(file.size(), position=0), state.base_offset)
            if found is not None and found[0].positions and found[0].positions[-1] > state.size_bytes:
                state = state._replace(next_offset=Offset(found[0].offsets[-1]), size_bytes=found[0].positions[-1])
        return really_recover(walk, state)

    monkeypatch.setattr(Segment, "append", append)
    monkeypatch.setattr(log_recovery._Walk, "_segment", recover)


def plant_forget_ids_in_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore message ids after the last snapshot at start."""
    monkeypatch.setattr(derived_state, "replay", lambda *_: None)


def plant_retry_without_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the retry of a made id without fencing the original attempt, which may then be stored too."""

    def fence(partition: Leadership, records: memoryview, made: MadeId) -> None:
        stamp_producer(records, NO_PRODUCER_ID, epoch=-1, base_sequence=-1)

    monkeypatch.setattr(put_deduplication, "_fence", fence)
