"""Tests properties of the broker's assignors."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.groups.consumer.assignors import (
    ASSIGNORS,
    NOTHING,
    Assignment,
    Assignor,
    Subscriber,
    partition_count,
    range_,
    uniform,
)
from millstream.model.ids import TopicIdBytes

TOPICS = [TopicIdBytes(bytes([number]) * 16) for number in range(5)]
MEMBERS = [f"m{number}" for number in range(6)]


@st.composite
def _problems(draw: st.DrawFn) -> tuple[dict[str, Subscriber], dict[TopicIdBytes, int]]:
    partitions = {topic_id: draw(st.integers(1, 12)) for topic_id in TOPICS}
    alike = draw(st.booleans())
    common = draw(st.frozensets(st.sampled_from(TOPICS), min_size=1))
    subscribers = {}
    for member_id in draw(st.lists(st.sampled_from(MEMBERS), unique=True)):
        topic_ids = common if alike else draw(st.frozensets(st.sampled_from(TOPICS)))
        before = draw(
            st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 15), min_size=1), max_size=3)
        )
        subscribers[member_id] = Subscriber(topic_ids, before, draw(st.sampled_from([None, f"i-{member_id}"])))
    return subscribers, partitions


def _given_out(assigned: dict[str, Assignment]) -> list[tuple[TopicIdBytes, int]]:
    return [
        (topic_id, number) for each in assigned.values() for topic_id, numbers in each.items() for number in numbers
    ]


def _loads(assigned: dict[str, Assignment]) -> dict[str, int]:
    return {member_id: partition_count(each) for member_id, each in assigned.items()}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(problem=_problems())
def test_every_partition_of_a_subscribed_topic_goes_to_exactly_one_subscriber(
    assignor: Assignor, problem: tuple[dict[str, Subscriber], dict[TopicIdBytes, int]]
) -> None:
    subscribers, partitions = problem
    assigned = assignor(subscribers, partitions)
    assert assigned.keys() == subscribers.keys()
    given_out = _given_out(assigned)
    assert len(given_out) == len(set(given_out))
    wanted = {topic_id for each in subscribers.values() for topic_id in each.topic_ids}
    assert set(given_out) == {(topic_id, number) for topic_id in wanted for number in range(partitions[topic_id])}
    for member_id, each in assigned.items():
        assert each.keys() <= subscribers[member_id].topic_ids
        assert all(each.values()), "topics without partitions are not named"


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(problem=_problems())
def test_the_order_of_the_input_does_not_change_the_assignment(
    assignor: Assignor, problem: tuple[dict[str, Subscriber], dict[TopicIdBytes, int]]
) -> None:
    subscribers, partitions = problem
    backwards = dict(reversed(subscribers.items()))
    assert assignor(subscribers, partitions) == assignor(backwards, dict(reversed(partitions.items())))


@given(problem=_problems())
def test_uniform_leaves_load_differences_of_at_most_one_between_co_subscribers(
    problem: tuple[dict[str, Subscriber], dict[TopicIdBytes, int]],
) -> None:
    subscribers, partitions = problem
    assigned = uniform(subscribers, partitions)
    loads = _loads(assigned)
    for giver, held in assigned.items():
        for taker, subscriber in subscribers.items():
            if not subscriber.topic_ids.isdisjoint(held):
                assert loads[giver] - loads[taker] <= 1


@given(problem=_problems())
def test_uniform_moves_no_partitions_without_a_change(
    problem: tuple[dict[str, Subscriber], dict[TopicIdBytes, int]],
) -> None:
    subscribers, partitions = problem
    assigned = uniform(subscribers, partitions)
    again = {member_id: each._replace(before=assigned[member_id]) for member_id, each in subscribers.items()}
    assert uniform(again, partitions) == assigned


@given(members=st.integers(1, 12), topics=st.integers(1, 5), partitions=st.integers(1, 20))
def test_uniform_moves_only_the_share_of_a_joining_member(members: int, topics: int, partitions: int) -> None:
    counts = dict.fromkeys(TOPICS[:topics], partitions)
    before = uniform({f"m{number:02}": Subscriber(frozenset(counts), NOTHING) for number in range(members)}, counts)
    subscribers = {member_id: Subscriber(frozenset(counts), each) for member_id, each in before.items()}
    after = uniform(subscribers | {"new": Subscriber(frozenset(counts), NOTHING)}, counts)
    moved = set(_given_out(before)) - {
        (topic_id, number)
        for member_id, each in before.items()
        for topic_id, numbers in each.items()
        for number in numbers & after[member_id].get(topic_id, frozenset())
    }
    assert len(moved) == partition_count(after["new"]) == topics * partitions // (members + 1)


def test_uniform_moves_only_the_partitions_of_a_leaving_member() -> None:
    counts = {TOPICS[0]: 12}
    before = uniform({member_id: Subscriber(frozenset(counts), NOTHING) for member_id in "abc"}, counts)
    after = uniform({member_id: Subscriber(frozenset(counts), before[member_id]) for member_id in "ab"}, counts)
    assert all(before[member_id][TOPICS[0]] < after[member_id][TOPICS[0]] for member_id in "ab")


@given(members=st.integers(1, 9), partitions=st.integers(1, 30))
def test_range_assigns_contiguous_and_co_partitioned_ranges(members: int, partitions: int) -> None:
    counts = dict.fromkeys(TOPICS[:3], partitions)
    subscribers = {f"m{number}": Subscriber(frozenset(counts), NOTHING) for number in range(members)}
    assigned = range_(subscribers, counts)
    for each in assigned.values():
        assert len(set(each.values())) <= 1
        assert all(after == before + 1 for numbers in each.values() for before, after in pairwise(sorted(numbers)))
    loads = _loads(assigned).values()
    assert max(loads) - min(loads) <= len(counts)


def test_range_orders_members_by_instance_id() -> None:
    counts = {TOPICS[0]: 4}
    topics = frozenset(counts)
    first = range_({"x": Subscriber(topics, NOTHING, "i1"), "y": Subscriber(topics, NOTHING, "i2")}, counts)
    second = range_({"z": Subscriber(topics, NOTHING, "i1"), "a": Subscriber(topics, NOTHING, "i2")}, counts)
    assert (first["x"], first["y"]) == (second["z"], second["a"])
