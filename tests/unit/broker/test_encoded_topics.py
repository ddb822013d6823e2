"""Tests the cache of encoded topics: its bytes equal those without a cache, and only changes are encoded again."""

from collections.abc import Callable, Container, Generator
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import pytest

from builders.loops import for_each
from builders.partitions import CLUSTER, ELSEWHERE, HOST, NODE_ID, a_topic, placed
from millstream.broker import encoded_topics
from millstream.broker.encoded_topics import KEPT_BYTES_MAX, PATCH, EncodedTopics, TopicForm
from millstream.catalog.catalog import Placement
from millstream.catalog.cluster_image import ClusterImage
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId, LeaderEpoch, TopicId
from millstream.model.names import PartitionKey

T = TypeVar("T")
FORM = TopicForm(12, None)


def image_of(*partitions: int) -> ClusterImage:
    """Return an image with topics of these partition counts on one broker."""
    topics = [a_topic(f"topic-{number:04}", number + 1, count) for number, count in enumerate(partitions)]
    rows = [placed(topic.topic_id, number) for topic in topics for number in range(topic.partitions)]
    return ClusterImage.of(CLUSTER, BrokerId(NODE_ID), [BrokerEndpoint(BrokerId(NODE_ID), HOST, 9092)], topics, rows)


def moved(image: ClusterImage, name: str, number: int = 0) -> ClusterImage:
    row = image.placement(name, number)
    assert row is not None
    changed = row._replace(leader_epoch=LeaderEpoch(row.leader_epoch + 1), partition_epoch=row.partition_epoch + 1)
    return image.placements_changed([changed])[0]


def ended(slices: Generator[None, None, T]) -> T:
    while True:
        try:
            next(slices)
        except StopIteration as stop:
            result: T = stop.value
            return result


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[PartitionKey]:
    """Return the partitions that were encoded."""
    keys: list[PartitionKey] = []
    real = encoded_topics.placement_row

    def counting(placement: Placement, nodes: Container[int]) -> dict[str, Any]:
        keys.append(placement.key)
        return real(placement, nodes)

    monkeypatch.setattr(encoded_topics, "placement_row", counting)
    return keys


def test_a_new_leader_epoch_encodes_only_its_topic_again(encoded: list[PartitionKey]) -> None:
    image = image_of(*[2] * 300)
    topics = EncodedTopics(image)
    ended(topics.encode_all(FORM))
    assert len(encoded) == 600
    encoded.clear()
    image = moved(image, "topic-0007")
    topics.catch_up(image)
    parts = ended(topics.encode_all(FORM))
    assert encoded == [(TopicId(UUID(int=8)), 0), (TopicId(UUID(int=8)), 1)]
    assert parts == ended(EncodedTopics(image).encode_all(FORM))


def test_a_large_topic_is_patched_around_the_changed_partition(encoded: list[PartitionKey]) -> None:
    image = image_of(2_530, 1)
    topics = EncodedTopics(image)
    ended(topics.encode_all(FORM))
    encoded.clear()
    image = moved(image, "topic-0000", 2_520)
    image, _ = image.topic_grown(TopicId(UUID(int=1)), [placed(TopicId(UUID(int=1)), 2_530)])
    topics.catch_up(image)
    parts = ended(topics.encode_all(FORM))
    assert [key.partition for key in encoded] == list(range(2_500, 2_531))
    assert len(encoded) <= PATCH
    assert parts == ended(EncodedTopics(image).encode_all(FORM))


def test_changed_settings_and_addresses_keep_cached_partitions(encoded: list[PartitionKey]) -> None:
    image = image_of(250)
    topics = EncodedTopics(image)
    ended(topics.encode_all(FORM))
    encoded.clear()
    image, _ = image.topic_altered(TopicId(UUID(int=1)), {"retention.ms": "1"})
    image, _ = image.broker_registered(BrokerEndpoint(BrokerId(NODE_ID), HOST, 9093))
    topics.catch_up(image)
    assert ended(topics.encode_all(FORM)) == ended(EncodedTopics(image).encode_all(FORM))
    assert len(encoded) == 250, "only the second cache encodes them"


def test_replicas_on_a_broker_that_registers_are_no_longer_offline() -> None:
    topic = a_topic("a", 1)
    rows = [placed(topic.topic_id, 0, ELSEWHERE.node_id)]
    image = ClusterImage.of(CLUSTER, BrokerId(NODE_ID), [BrokerEndpoint(BrokerId(NODE_ID), HOST, 9092)], [topic], rows)
    topics = EncodedTopics(image)
    before = ended(topics.encode_all(FORM))
    image, _ = image.broker_registered(ELSEWHERE)
    topics.catch_up(image)
    after = ended(topics.encode_all(FORM))
    assert after == ended(EncodedTopics(image).encode_all(FORM)) != before


@for_each("seed", range(10))
def test_cached_encodings_equal_new_ones_after_random_topic_changes(seed: int) -> None:
    random = Random(seed)
    image = image_of(*(random.choice([1, 3, PATCH, PATCH + 1, 3 * PATCH]) for _ in range(8)))
    topics = EncodedTopics(image)
    forms = [TopicForm(version, 8 if version % 2 else None) for version in (0, 5, 9, 13)]

    def move() -> ClusterImage:
        topic = image.topic(random.choice(image.names))
        assert topic is not None
        return moved(image, topic.name, random.randrange(topic.partitions))

    def recreate() -> ClusterImage:
        topic = image.topic(random.choice(image.names))
        assert topic is not None
        gone, _ = image.topic_deleted(topic.topic_id)
        made = a_topic(topic.name, 100 + image.version, random.choice([1, 2 * PATCH]))
        return gone.topic_created(made, [placed(made.topic_id, number) for number in range(made.partitions)])[0]

    def grow() -> ClusterImage:
        topic = image.topic(random.choice(image.names))
        assert topic is not None
        return image.topic_grown(topic.topic_id, [placed(topic.topic_id, topic.partitions)])[0]

    changes: list[Callable[[], ClusterImage]] = [move, recreate, grow]
    for _ in range(25):
        for _ in range(random.randrange(3)):
            image = random.choice(changes)()
        topics.catch_up(image)
        form = random.choice(forms)
        assert ended(topics.encode_all(form)) == ended(EncodedTopics(image).encode_all(form))


def test_a_topic_that_changes_while_it_is_encoded_is_not_cached() -> None:
    image = image_of(3_000)
    topics = EncodedTopics(image)
    slices = topics.encode_all(FORM)
    next(slices)
    later = moved(image, "topic-0000", 5)
    topics.catch_up(later)
    ended(slices)
    assert topics.kept(FORM, "topic-0000") == b""
    assert ended(topics.encode_all(FORM)) == ended(EncodedTopics(later).encode_all(FORM))


def test_rows_encoded_while_a_broker_registers_are_not_cached() -> None:
    topic = a_topic("a", 1, 3_000)
    rows = [placed(topic.topic_id, number, ELSEWHERE.node_id) for number in range(3_000)]
    image = ClusterImage.of(CLUSTER, BrokerId(NODE_ID), [BrokerEndpoint(BrokerId(NODE_ID), HOST, 9092)], [topic], rows)
    topics = EncodedTopics(image)
    slices = topics.encode_all(FORM)
    next(slices)
    later, _ = image.broker_registered(ELSEWHERE)
    topics.catch_up(later)
    ended(slices)
    assert ended(topics.encode_all(FORM)) == ended(EncodedTopics(later).encode_all(FORM))


def test_registering_a_broker_reencodes_only_partitions_with_its_replicas(encoded: list[PartitionKey]) -> None:
    image = image_of(2_500, 1, 1)
    moved_to = placed(TopicId(UUID(int=1)), 1_250, ELSEWHERE.node_id, epoch=1, change=1)
    image, _ = image.placements_changed([moved_to, placed(TopicId(UUID(int=2)), 0, ELSEWHERE.node_id, change=1)])
    topics = EncodedTopics(image)
    ended(topics.encode_all(FORM))
    encoded.clear()
    image, _ = image.broker_registered(ELSEWHERE)
    topics.catch_up(image)
    parts = ended(topics.encode_all(FORM))
    assert encoded == [*((TopicId(UUID(int=1)), number) for number in range(1_200, 1_300)), (TopicId(UUID(int=2)), 0)]
    assert parts == ended(EncodedTopics(image).encode_all(FORM))


def test_concurrent_requests_encode_each_topic_once(encoded: list[PartitionKey]) -> None:
    topics = EncodedTopics(image_of(*[900] * 5))
    requests = [topics.encode_all(FORM) for _ in range(3)]
    answers: list[list[bytes]] = []
    while requests:
        for request in list(requests):
            try:
                next(request)
            except StopIteration as stop:
                answers.append(stop.value)
                requests.remove(request)
    assert answers[0] == answers[1] == answers[2]
    assert len(encoded) == 5 * 900


@for_each("seed", range(10))
def test_the_size_of_the_cache_is_counted(seed: int) -> None:
    random = Random(seed)
    image = image_of(1, 250, 120, 1)
    topics = EncodedTopics(image)
    for step in range(30):
        if step % 10 == 5:
            image, _ = image.broker_registered(BrokerEndpoint(BrokerId(100 + step), HOST, 9092))
        image = moved(image, random.choice(image.names))
        topics.catch_up(image)
        ended(topics.encode(FORM, image.topic("topic-0001") or next(image.topics())))
        ended(topics.encode_all(random.choice([FORM, TopicForm(5, None)])))
    held = sum(len(each) for by_name in topics._topics.values() for each in by_name.values())
    held += sum(len(piece.encoded) for pieces in topics._pieces.values() for piece in pieces)
    assert topics._kept_bytes == held


def kept_names(topics: EncodedTopics, image: ClusterImage, form: TopicForm = FORM) -> list[str]:
    return [name for name in image.names if topics.kept(form, name)]


def test_a_full_cache_evicts_the_topics_that_were_encoded_first(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_of(*[1] * 50)
    one = len(ended(EncodedTopics(image).encode_all(FORM))[0])
    assert one < KEPT_BYTES_MAX
    monkeypatch.setattr(encoded_topics, "KEPT_BYTES_MAX", 10 * one)
    topics = EncodedTopics(image)
    assert len(ended(topics.encode_all(FORM))) == 50
    assert kept_names(topics, image) == list(image.names[40:])
    first = image.topic(image.names[0])
    assert first is not None
    ended(topics.encode(FORM, first))
    assert kept_names(topics, image) == [image.names[0], *image.names[41:]]


def test_a_repeated_request_encodes_only_the_topics_that_exceed_the_cache(
    monkeypatch: pytest.MonkeyPatch, encoded: list[PartitionKey]
) -> None:
    image = image_of(*[1] * 50)
    one = len(ended(EncodedTopics(image).encode_all(FORM))[0])
    monkeypatch.setattr(encoded_topics, "KEPT_BYTES_MAX", 45 * one)
    topics = EncodedTopics(image)
    for _ in range(3):
        encoded.clear()
        ended(topics.encode_all(FORM))
    assert len(encoded) == 5, "45 of 50 topics were in the cache"


def test_a_full_cache_evicts_the_oldest_encoded_version_first(monkeypatch: pytest.MonkeyPatch) -> None:
    image, old = image_of(*[1] * 10), TopicForm(11, None)
    ended((both := EncodedTopics(image)).encode_all(FORM))
    ended(both.encode_all(old))
    monkeypatch.setattr(encoded_topics, "KEPT_BYTES_MAX", both._kept_bytes - 1)
    topics = EncodedTopics(image)
    for form in (old, FORM):
        ended(topics.encode_all(form))
    assert kept_names(topics, image, old) == list(image.names[1:])
    assert kept_names(topics, image) == list(image.names)


def test_a_full_cache_evicts_encoded_pieces_of_changed_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_of(3 * PATCH, 3 * PATCH, 3 * PATCH)
    topics = EncodedTopics(image)
    ended(topics.encode_all(FORM))
    monkeypatch.setattr(encoded_topics, "KEPT_BYTES_MAX", topics._kept_bytes)
    grown = image
    for name in image.names[:2]:
        topic = grown.topic(name)
        assert topic is not None
        grown, _ = grown.topic_grown(topic.topic_id, [placed(topic.topic_id, topic.partitions)])
    topics.catch_up(grown)
    last = grown.topic(grown.names[1])
    assert last is not None
    ended(topics.encode(FORM, last))
    ended(topics.encode(TopicForm(11, None), last))
    assert topics._kept_bytes <= encoded_topics.KEPT_BYTES_MAX
    assert (FORM, image.names[0]) not in topics._pieces


def test_a_topic_larger_than_the_cache_evicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_of(1, 1, 5 * PATCH)
    one = len(ended(EncodedTopics(image).encode_all(FORM))[0])
    monkeypatch.setattr(encoded_topics, "KEPT_BYTES_MAX", 3 * one)
    topics = EncodedTopics(image)
    ended(topics.encode_all(FORM))
    assert kept_names(topics, image) == list(image.names[:2])


@for_each("seed", range(10))
def test_cached_encodings_equal_new_ones_while_a_small_cache_evicts(seed: int) -> None:
    random = Random(seed)
    image = image_of(1, 250, 120, 1, 2 * PATCH)
    forms = [FORM, TopicForm(5, None), TopicForm(9, 8)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(encoded_topics, "KEPT_BYTES_MAX", random.choice([1_000, 10_000, 50_000]))
        topics = EncodedTopics(image)
        for _ in range(40):
            image = moved(image, random.choice(image.names))
            topics.catch_up(image)
            form = random.choice(forms)
            assert ended(topics.encode_all(form)) == ended(EncodedTopics(image).encode_all(form))
            assert topics._kept_bytes <= encoded_topics.KEPT_BYTES_MAX
            held = sum(len(each) for by_name in topics._topics.values() for each in by_name.values())
            assert topics._kept_bytes == held + sum(
                len(piece.encoded) for pieces in topics._pieces.values() for piece in pieces
            )


class CountedDict(dict[str, bytes]):
    """The cached topics of a form, which counts lookups."""

    lookups = 0

    def get(self, name: str, default: Any = None) -> Any:
        self.lookups += 1
        return super().get(name, default)


def test_a_change_costs_no_pass_over_the_list_of_all_topics() -> None:
    image = image_of(*[1] * 500)
    topics = EncodedTopics(image)
    ended(topics.encode_all(FORM))
    counted = topics._topics[FORM] = CountedDict(topics._topics[FORM])
    added = a_topic("topic-0100-b", 900)
    gone = image.topic("topic-0300")
    assert gone is not None
    changed = moved(image, "topic-0007").topic_created(added, [placed(added.topic_id, 0)])[0]
    changed = changed.topic_deleted(gone.topic_id)[0]
    topics.catch_up(changed)
    assert ended(topics.encode_all(FORM)) == ended(EncodedTopics(changed).encode_all(FORM))
    assert counted.lookups < 20


def test_a_broker_that_joins_costs_no_pass_over_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_of(*[1] * 500)
    topics = EncodedTopics(image)
    ended(topics.encode_all(FORM))
    changed = image.broker_registered(ELSEWHERE)[0]
    expected = ended(EncodedTopics(changed).encode_all(FORM))
    counted = topics._topics[FORM] = CountedDict(topics._topics[FORM])
    monkeypatch.setattr(ClusterImage, "topics", no_topics)
    topics.catch_up(changed)
    assert ended(topics.encode_all(FORM)) == expected
    assert counted.lookups < 20


def no_topics(image: ClusterImage) -> None:
    raise AssertionError("all topics were looked at")


def test_many_changed_topics_make_the_list_of_all_topics_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_topics, "RELISTED_MAX", 3)
    image = image_of(*[1] * 20)
    topics = EncodedTopics(image)
    ended(topics.encode_all(FORM))
    for number in range(4):
        found = image.topic(f"topic-000{number}")
        assert found is not None
        image = image.topic_deleted(found.topic_id)[0]
    topics.catch_up(image)
    assert ended(topics.encode_all(FORM)) == ended(EncodedTopics(image).encode_all(FORM))
