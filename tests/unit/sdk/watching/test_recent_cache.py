"""What is kept of what came: within its bounds, end to end, and never anything else than what came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import numbered_batch
from millstream.model.names import TopicPartition
from millstream.sdk.watching.read_result import ReadResult, WatchLimits, cut, share_out
from millstream.sdk.watching.recent_cache import RecentCache, RecentChunk, RecentMessages

ALL_BYTES, SHELF_BYTES, KEEP_S = 20_000, 8_000, 5.0
MUCH = WatchLimits(1_000, 1_000_000)


def places(count: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in range(count)]


def chunk(begin: int, count: int, came_s: float = 0.0) -> RecentChunk:
    return RecentChunk(begin, begin + count, memoryview(bytes(numbered_batch(count, base_offset=begin))), came_s)


class Kept:
    """Some shelves, and what was put on them."""

    def __init__(self) -> None:
        self.cache = RecentCache(ALL_BYTES, SHELF_BYTES, KEEP_S)
        self.shelves = [RecentMessages(where) for where in places(3)]
        self.ends = [0, 0, 0]
        self.now_s = 0.0

    def put(self, number: int, count: int) -> None:
        self.cache.put(self.shelves[number], chunk(self.ends[number], count, self.now_s))
        self.ends[number] += count

    def take(self, number: int, offset: int) -> None:
        taken = self.cache.take(self.shelves[number], offset, MUCH)
        if taken is not None:
            messages, end = taken
            assert [message.offset for message in messages] == list(range(offset, end))
            assert all(message.partition == number for message in messages)

    def check(self) -> None:
        assert self.cache.size_bytes == sum(shelf.size_bytes for shelf in self.shelves) <= ALL_BYTES
        assert len(self.cache) == sum(map(len, self.shelves))
        for shelf, end in zip(self.shelves, self.ends, strict=True):
            chunks = [shelf[number] for number in range(len(shelf))]
            assert sum(each.size_bytes for each in chunks) == shelf.size_bytes <= SHELF_BYTES
            assert [each.begin for each in chunks[1:]] == [each.end for each in chunks[:-1]]
            assert not chunks or chunks[-1].end == end


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
def test_what_is_kept_stays_within_its_bounds_and_end_to_end(steps: list[tuple[str, int, int]]) -> None:
    kept = Kept()
    for step, number, amount in steps:
        if step == "put":
            kept.put(number, amount)
        elif step == "take":
            kept.take(number, amount)
        elif step == "clear":
            kept.cache.clear(kept.shelves[number])
        else:
            kept.now_s += number
            kept.cache.expire(kept.now_s)
        kept.check()


def test_what_has_been_kept_for_long_enough_is_forgotten() -> None:
    kept = Kept()
    kept.put(0, 3)
    kept.now_s = KEEP_S - 1
    kept.put(1, 3)
    kept.cache.expire(KEEP_S)
    assert [len(shelf) for shelf in kept.shelves] == [0, 1, 0]


def portion(number: int, count: int) -> ReadResult:
    messages = chunk(0, count).open(TopicPartition("orders", number)) if count else []
    return ReadResult("orders", number, messages, count, 0, count)


@pytest.mark.parametrize(("limits", "count"), [((1, 1), 1), ((3, 1_000), 3), ((100, 1_000_000), 10), ((10, 1), 1)])
def test_a_portion_is_cut_to_its_limits_but_has_a_message(limits: tuple[int, int], count: int) -> None:
    found = cut(portion(0, 10), WatchLimits(*limits))
    assert (len(found.messages), found.next_offset) == (count, count)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 40), st.integers(1, 500))
def test_shares_keep_to_the_limits_and_begin_where_each_was_asked_for(
    counts: list[int], messages: int, size_bytes: int
) -> None:
    found = {where: portion(where.partition, count) for where, count in zip(places(6), counts, strict=False)}
    shared = share_out(found, WatchLimits(messages, size_bytes))
    given_out = sum(len(each.messages) for each in shared.values())
    assert min(1, sum(counts)) <= given_out <= messages
    for each in shared.values():
        assert [message.offset for message in each.messages] == list(range(len(each.messages)))
        assert each.next_offset == len(each.messages)
