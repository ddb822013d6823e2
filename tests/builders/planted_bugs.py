"""Bugs that a storage engine could well have, to be planted into ours for the length of a test.

They live here and not in the product: the simulation must find them, or it would not find the real ones either.
"""

from collections.abc import Sequence

import pytest

from millstream.groups.effects import Effects
from millstream.groups.runtime.shard import Shard
from millstream.model.limits import NO_PRODUCER_ID
from millstream.model.message_id import MadeId
from millstream.partition import derived_state, put_deduplication
from millstream.partition.partition import Partition
from millstream.partition.produce_rules import stamp_producer
from millstream.records.header import BatchHeader
from millstream.storage.cleaning import rewriting
from millstream.storage.log import sparse_index as index_files
from millstream.storage.log.log import Log
from millstream.storage.log.segment import INDEX_SUFFIX, SEGMENT_SUFFIX, Segment, SegmentState, segment_name
from millstream.storage.log.sparse_index import SparseIndex
from millstream.storage.recovery import log_recovery
from millstream.storage.store import LogStore


def plant_acknowledge_before_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush is asked for, but the acknowledgement does not wait for it."""
    really_commit = LogStore.commit

    def commit(store: LogStore, log: Log) -> None:
        really_commit(store, log)

    monkeypatch.setattr(LogStore, "commit", commit)


def plant_commit_before_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups answer when their records are written, not when they are durable."""
    really_answer = Shard._answer

    def answer(shard: Shard, effects: Effects, *, at_once: bool) -> None:
        really_answer(shard, effects, at_once=True)

    monkeypatch.setattr(Shard, "_answer", answer)


def plant_exchange_before_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted segment takes the place of the old ones before it is on stable storage."""
    monkeypatch.setattr(rewriting._Output, "finish", rewriting._Output._write)


def plant_index_before_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch's index entry reaches the disk before the batch, and recovery believes what the index says."""
    really_append = Segment.append
    really_recover = log_recovery._Walk._segment
    indexes: dict[str, SparseIndex] = {}

    def append(segment: Segment, batches: memoryview, headers: Sequence[tuple[int, BatchHeader]]) -> None:
        path = segment.path.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
        index = indexes.get(path)
        if index is None or segment.size_bytes == 0:
            index = indexes[path] = SparseIndex(segment.base_offset, 0, interval_bytes=1)
        if segment.size_bytes >= index.due:
            index.add(segment.next_offset, segment.size_bytes, segment.max_timestamp)
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
            found = index_files.decode(file.read(file.size(), 0), state.base_offset)
            if found is not None and found[0].positions and found[0].positions[-1] > state.size_bytes:
                state = state._replace(next_offset=found[0].offsets[-1], size_bytes=found[0].positions[-1])
        return really_recover(walk, state)

    monkeypatch.setattr(Segment, "append", append)
    monkeypatch.setattr(log_recovery._Walk, "_segment", recover)


def plant_forget_ids_in_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start makes nothing of the message ids that lie behind the last save."""
    monkeypatch.setattr(derived_state, "replay", lambda *_: None)


def plant_retry_without_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The retry of a made id is stored, and nothing keeps the attempt that it repeats from being stored as well."""

    def fence(partition: Partition, records: memoryview, made: MadeId) -> None:
        stamp_producer(records, NO_PRODUCER_ID, -1, -1)

    monkeypatch.setattr(put_deduplication, "_fence", fence)
