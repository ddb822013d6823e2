"""Tests that the recent cache stays within its limits, has no gaps and returns exactly the delivered messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import numbered_batch
from millstream.model.names import TopicPartition
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.watching.read_result import ReadResult, WatchLimits, cut, share_out
from millstream.sdk.watching.recent_cache import RecentCache, RecentChunk, RecentMessages

ALL_BYTES, PARTITION_BYTES, KEEP_S = 20_000, 8_000, 5.0
MUCH = WatchLimits(1_000, 1_000_000)
WHERE = TopicPartition("orders", 0)


def places(count: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in range(count)]


def chunk(begin: int, count: int, arrived_s: float = 0.0, where: TopicPartition = WHERE) -> RecentChunk:
    stored = memoryview(bytes(numbered_batch(count, base_offset=begin)))
    return RecentChunk(
        FetchedChunk(PartitionFeed(where, begin), begin, next_offset=begin + count, stored=stored), arrived_s
    )


class CacheModel:
    """A cache with three partitions, and the end offset of each."""

    def __init__(self) -> None:
        self.cache = RecentCache(all_bytes=ALL_BYTES, partition_bytes=PARTITION_BYTES, keep_s=KEEP_S)
        self.partitions = [RecentMessages(where) for where in places(3)]
        self.ends = [0, 0, 0]
        self.now_s = 0.0

    def put(self, number: int, count: int) -> None:
        recent = self.partitions[number]
        self.cache.put(recent, chunk(self.ends[number], count, self.now_s, recent.where))
        self.ends[number] += count

    def take(self, number: int, offset: int) -> None:
        taken = self.cache.take(self.partitions[number], offset, MUCH)
        if taken is not None:
            messages, end = taken
            assert [message.offset for message in messages] == list(range(offset, end))
            assert all(message.partition == number for message in messages)

    def check(self) -> None:
        assert self.cache.size_bytes == sum(recent.size_bytes for recent in self.partitions) <= ALL_BYTES
        assert len(self.cache) == sum(map(len, self.partitions))
        for recent, end in zip(self.partitions, self.ends, strict=True):
            chunks = [recent[number] for number in range(len(recent))]
            assert sum(each.size_bytes for each in chunks) == recent.size_bytes <= PARTITION_BYTES
            assert [each.chunk.offset for each in chunks[1:]] == [each.chunk.next_offset for each in chunks[:-1]]
            assert not chunks or chunks[-1].chunk.next_offset == end


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 2), st.integers(1, 20)),
            st.tuples(st.just("take"), st.integers(0, 2), st.integers(0, 100)),
            st.tuples(st.just("wait"), st.integers(0, 6), st.just(0)),
            st.tuples(st.just("clear"), st.integers(0, 2), st.just(0)),
        )
    )
)
def test_the_cache_stays_within_its_limits_and_without_gaps(steps: list[tuple[str, int, int]]) -> None:
    model = CacheModel()
    for step, number, amount in steps:
        if step == "put":
            model.put(number, amount)
        elif step == "take":
            model.take(number, amount)
        elif step == "clear":
            model.cache.clear(model.partitions[number])
        else:
            model.now_s += number
            model.cache.expire(model.now_s)
        model.check()


def test_chunks_are_evicted_after_their_keep_time() -> None:
    model = CacheModel()
    model.put(0, 3)
    model.now_s = KEEP_S - 1
    model.put(1, 3)
    model.cache.expire(KEEP_S)
    assert [len(recent) for recent in model.partitions] == [0, 1, 0]


def result(number: int, count: int) -> ReadResult:
    messages = chunk(0, count, where=TopicPartition("orders", number)).open() if count else []
    return ReadResult("orders", number, messages, count, 0, count)


@pytest.mark.parametrize(("limits", "count"), [((1, 1), 1), ((3, 1_000), 3), ((100, 1_000_000), 10), ((10, 1), 1)])
def test_a_result_is_cut_to_its_limits_but_keeps_one_message(limits: tuple[int, int], count: int) -> None:
    found = cut(result(0, 10), WatchLimits(*limits))
    assert (len(found.messages), found.next_offset) == (count, count)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 40), st.integers(1, 500))
def test_shared_results_respect_the_limits_and_start_at_their_offsets(
    counts: list[int], messages: int, size_bytes: int
) -> None:
    found = {where: result(where.partition, count) for where, count in zip(places(6), counts, strict=False)}
    shared = share_out(found, WatchLimits(messages, size_bytes))
    given_out = sum(len(each.messages) for each in shared.values())
    assert min(1, sum(counts)) <= given_out <= messages
    for each in shared.values():
        assert [message.offset for message in each.messages] == list(range(len(each.messages)))
        assert each.next_offset == len(each.messages)
