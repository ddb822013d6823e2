"""Tests how ranges become tasks: everything is read once, however ranges are split and merged."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.names import TopicPartition
from millstream.spark.reading.planning import MERGE_BYTES, SPLIT_BYTES, Range, admit, plan

ID = UUID(int=7)
MB = 1024 * 1024


def ranged(partition: int, start: int, end: int, size_bytes: int) -> Range:
    return Range("orders", ID, partition, start, end, size_bytes)


@st.composite
def ranges(draw: st.DrawFn) -> list[Range]:
    found = []
    for partition in range(draw(st.integers(0, 12))):
        start, offsets = draw(st.integers(0, 1000)), draw(st.integers(0, 50))
        found.append(ranged(partition, start, start + offsets, draw(st.integers(0, 400 * MB)) if offsets else 0))
    return found


@given(ranges(), st.integers(1, 40))
def test_every_offset_is_read_by_exactly_one_task(given_ranges: list[Range], tasks_min: int) -> None:
    read = [
        (each.partition, offset)
        for task in plan(given_ranges, tasks_min)
        for each in task
        for offset in range(each.start, each.end)
    ]
    wanted = [(each.partition, offset) for each in given_ranges for offset in range(each.start, each.end)]
    assert sorted(read) == wanted


@given(ranges(), st.integers(1, 40))
def test_plan_makes_the_requested_number_of_tasks_and_none_is_empty(given_ranges: list[Range], tasks_min: int) -> None:
    tasks = plan(given_ranges, tasks_min)
    assert len(tasks) >= min(tasks_min, sum(each.offsets for each in given_ranges))
    assert all(task and all(each.offsets > 0 for each in task) for task in tasks)


@given(ranges(), st.integers(1, 40))
def test_only_small_ranges_share_a_task(given_ranges: list[Range], tasks_min: int) -> None:
    for task in plan(given_ranges, tasks_min):
        assert len(task) == 1 or sum(each.size_bytes for each in task) <= MERGE_BYTES
        assert len({each.where for each in task}) == len(task)


@given(ranges())
def test_no_task_exceeds_the_size_limit_by_more_than_one_message(given_ranges: list[Range]) -> None:
    largest = max((each.size_bytes / each.offsets for each in given_ranges if each.offsets), default=0)
    for task in plan(given_ranges):
        assert sum(each.size_bytes for each in task) <= SPLIT_BYTES + largest


def test_a_large_range_is_split_and_small_ones_share_a_task() -> None:
    small = [ranged(partition, 0, 10, 1000) for partition in range(5)]
    assert plan(small) == [small]
    assert len(plan([ranged(0, 0, 1000, 10 * SPLIT_BYTES)])) == 10


def test_small_ranges_still_share_tasks_when_few_tasks_are_requested() -> None:
    small = [ranged(partition, 0, 10, 1000) for partition in range(6)]
    assert plan(small, 3) == [small[:1], small[1:3], small[3:]]
    assert plan(small, 6) == [[each] for each in small]


def test_more_tasks_are_made_by_halving_the_largest_range() -> None:
    tasks = plan([ranged(0, 0, 100, 1000), ranged(1, 0, 10, 100)], 3)
    assert [[(each.partition, each.start, each.end) for each in task] for task in tasks] == [
        [(0, 0, 50)],
        [(0, 50, 100)],
        [(1, 0, 10)],
    ]


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    places = [TopicPartition("orders", number) for number in range(draw(st.integers(1, 8)))]
    starts = {where: draw(st.integers(0, 1000)) for where in places}
    return starts, {where: starts[where] + draw(st.integers(0, 10_000)) for where in places}


@given(backlogs(), st.integers(1, 20_000), st.floats(0.5, 200.0))
def test_a_batch_stays_within_its_budget_but_is_never_empty(
    backlog: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], budget: int, cost: float
) -> None:
    starts, ends = backlog
    admitted = admit(starts, ends, budget, dict.fromkeys(ends, cost))
    taken = sum(admitted[where] - starts[where] for where in ends)
    assert all(starts[where] <= admitted[where] <= ends[where] for where in ends)
    assert taken * cost <= max(budget * 1.000001, cost)
    assert taken > 0 or ends == starts


@given(backlogs(), st.integers(8, 20_000))
def test_every_partition_with_messages_gets_at_least_one(
    backlog: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], budget: int
) -> None:
    starts, ends = backlog
    admitted = admit(starts, ends, budget, dict.fromkeys(ends, 1.0))
    assert all(admitted[where] > starts[where] for where in ends if ends[where] > starts[where])


def test_an_end_before_the_start_reads_nothing() -> None:
    where = TopicPartition("orders", 0)
    assert admit({where: 10}, {where: 4}, 100, {where: 1.0}) == {where: 10}
