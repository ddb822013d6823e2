"""The metadata cache has the newest known leader of each partition, from metadata responses and from refusals."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk.connection.address import Address, PartitionLeader
from millstream.sdk.connection.metadata_cache import LEADERLESS_TOPIC_CACHE_S, TOPIC_CACHE_S, MetadataCache
from millstream.sdk.responses import Broker, ClusterView, NotLeaderError, PartitionView, TopicView

BROKERS = {number: Broker(number, f"broker{number}", 9092) for number in (1, 2, 3)}
WHERE = TopicPartition("orders", 1)
ID, OTHER_ID = UUID(int=1), UUID(int=2)
REFUSED = MillstreamError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "refused")


def topic(*leaders: tuple[int, int], topic_id: UUID = ID, error: int = 0) -> TopicView:
    """Describe a topic by the leader and the epoch of each partition."""
    rows = [PartitionView(number, leader, epoch, (1, 2), (1,)) for number, (leader, epoch) in enumerate(leaders)]
    return TopicView("orders", topic_id, is_internal=False, error_number=error, partitions=tuple(rows))


def described(view: TopicView) -> ClusterView:
    return ClusterView("cluster", 1, BROKERS, {view.name: view})


def cache_of(*leaders: tuple[int, int], topic_id: UUID = ID) -> MetadataCache:
    cache = MetadataCache()
    cache.update(described(topic(*leaders, topic_id=topic_id)), 0.0)
    return cache


def leaders_in(cache: MetadataCache, now_s: float = 0.0) -> list[tuple[int, int]] | None:
    view = cache.topic("orders", now_s)
    return None if view is None else [(row.leader_id, row.leader_epoch) for row in view.partitions]


def naming(leader_id: int, epoch: int, broker: Broker | None = None) -> NotLeaderError:
    return NotLeaderError(REFUSED, leader_id=leader_id, leader_epoch=epoch, broker=broker)


def leader(number: int, epoch: int) -> PartitionLeader:
    return PartitionLeader(Address(f"broker{number}", 9092), epoch)


@pytest.mark.parametrize(("leader_id", "use_s"), [(1, TOPIC_CACHE_S), (-1, LEADERLESS_TOPIC_CACHE_S)])
def test_a_description_is_used_for_a_limited_time(leader_id: int, use_s: float) -> None:
    cache = cache_of((leader_id, 0))
    assert cache.topic("orders", use_s) is not None
    assert cache.topic("orders", use_s + 0.1) is None


def test_a_named_leader_replaces_the_older_one_of_its_partition_only() -> None:
    cache = cache_of((1, 3), (1, 3), (1, 3))
    assert cache.leader_failed(WHERE, "broker1:9092", naming(2, 4)) == leader(2, 4)
    assert leaders_in(cache) == [(1, 3), (2, 4), (1, 3)]


def test_a_named_leader_is_cached_with_the_address_in_the_refusal() -> None:
    cache = cache_of((1, 3), (1, 3))
    assert cache.leader_failed(WHERE, "broker1:9092", naming(9, 4)) is None
    assert leaders_in(cache) is None
    cache = cache_of((1, 3), (1, 3))
    found = cache.leader_failed(WHERE, "broker1:9092", naming(9, 4, Broker(9, "new", 1)))
    assert found == PartitionLeader(Address("new", 1), 4)
    assert leaders_in(cache) == [(1, 3), (9, 4)]


def test_the_leader_that_several_refusals_name_stays_cached() -> None:
    cache = cache_of((1, 3), (1, 3))
    for _ in range(3):
        assert cache.leader_failed(WHERE, "broker1:9092", naming(2, 4)) == leader(2, 4)
    assert leaders_in(cache) == [(1, 3), (2, 4)]


@pytest.mark.parametrize(
    "error",
    [REFUSED, MillstreamError(ErrorCode.NETWORK_EXCEPTION, "lost"), naming(2, 2), naming(2, 3), naming(-1, 4)],
    ids=["no leader named", "lost connection", "older epoch", "another leader of the same epoch", "leader unknown"],
)
def test_a_topic_is_forgotten_after_a_failure_that_names_no_newer_leader(error: MillstreamError) -> None:
    cache = cache_of((1, 3), (1, 3))
    assert cache.leader_failed(WHERE, "broker1:9092", error) is None
    assert leaders_in(cache) is None


def test_a_topic_is_forgotten_when_its_leader_refuses_and_names_itself() -> None:
    cache = cache_of((1, 3), (1, 3))
    assert cache.leader_failed(WHERE, "broker1:9092", naming(1, 3)) == leader(1, 3)
    assert leaders_in(cache) is None


def test_outdated_metadata_does_not_replace_a_newer_leader() -> None:
    cache = cache_of((1, 3), (1, 3))
    cache.leader_failed(WHERE, "broker1:9092", naming(2, 4))
    cache.forget("orders")
    cache.update(described(topic((3, 4), (1, 3))), 1.0)
    assert leaders_in(cache) == [(3, 4), (2, 4)]
    cache.update(described(topic((3, 4), (3, 5))), 1.0)
    assert leaders_in(cache) == [(3, 4), (3, 5)]


def test_metadata_of_the_same_epoch_replaces_the_cached_leader() -> None:
    cache = cache_of((1, 3), (1, 3))
    cache.update(described(topic((1, 3), (-1, 3))), 1.0)
    assert leaders_in(cache, 1.0) == [(1, 3), (-1, 3)]


@pytest.mark.parametrize(
    ("before", "after", "epoch"),
    [(ID, OTHER_ID, 0), (NO_TOPIC_ID, NO_TOPIC_ID, 0), (ID, NO_TOPIC_ID, 0), (ID, ID, -1)],
    ids=["recreated topic", "no topic ids", "no topic id any more", "no epochs"],
)
def test_metadata_with_a_lower_epoch_is_cached_when_the_topic_id_differs(before: UUID, after: UUID, epoch: int) -> None:
    cache = cache_of((1, 3), topic_id=before)
    cache.update(described(topic((2, epoch), topic_id=after)), 1.0)
    assert leaders_in(cache, 1.0) == [(2, epoch)]


def test_a_topic_that_the_cluster_does_not_have_leaves_no_epochs() -> None:
    cache = cache_of((1, 3))
    missing = topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number)
    cache.update(described(missing), 1.0)
    assert leaders_in(cache) is None
    cache.update(described(topic((2, 0))), 2.0)
    assert leaders_in(cache, 2.0) == [(2, 0)]


def test_a_partition_without_a_leader_forgets_its_topic() -> None:
    cache = cache_of((1, 3), (-1, 3))
    view = cache.topic("orders", 0.0)
    assert view is not None
    assert cache.leader_in(view, 0) == leader(1, 3)
    with pytest.raises(MillstreamError, match="LEADER_NOT_AVAILABLE"):
        cache.leader_in(view, 1)
    assert leaders_in(cache) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(0, 9)), max_size=40))
def test_the_epoch_of_a_cached_leader_never_decreases(script: list[tuple[bool, int, int]]) -> None:
    cache, newest = cache_of((1, 0), (1, 0)), 0
    for is_hint, leader_id, epoch in script:
        if is_hint:
            cache.leader_failed(WHERE, "broker1:9092", naming(leader_id, epoch))
        else:
            cache.update(described(topic((1, 0), (leader_id, epoch))), 0.0)
        newest = max(newest, epoch)
        found = leaders_in(cache)
        assert found is None or found[1][1] == newest
