"""Tests that transitions of a cluster image give the image that the catalog's rows describe."""

from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest
from msgspec.structs import replace

from builders.loops import for_each
from builders.partitions import ELSEWHERE, a_topic, placed
from millstream.catalog.catalog import Placement, Topic, TopicState
from millstream.catalog.cluster_image import NO_CONTROLLER, ClusterDelta, ClusterImage, Transition
from millstream.catalog.cluster_metadata import ClusterMetadata
from millstream.catalog.persistent_map import PersistentMap
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId, LeaderEpoch, TopicId
from millstream.model.names import PartitionKey

ME = BrokerEndpoint(BrokerId(1), "broker-1.example", 9092)
NAMES = [f"{letter}{dot}{number}" for letter in "ab" for dot in "._" for number in range(6)]


class Rows:
    """The rows of a catalog, changed together with the image that follows them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.brokers = {ME.node_id: ME}
        self.controller = ME.node_id
        self.topics: dict[TopicId, Topic] = {}
        self.placements: dict[PartitionKey, Placement] = {}
        self.image = ClusterImage.of("cluster", BrokerId(1), [ME], (), ())
        self.next_id = 1

    def scratch(self) -> ClusterImage:
        """Builds the image from the rows, some of which are of unfinished topics and partitions."""
        creating = Topic("creating", TopicId(UUID(int=10**6)), 1, {}, TopicState.CREATING)
        growing = [placed(topic.topic_id, topic.partitions) for topic in list(self.topics.values())[::2]]
        topics = [creating, *self.topics.values()]
        rows = [placed(creating.topic_id, 0), *self.placements.values(), *growing]
        self.random.shuffle(rows)
        return ClusterImage.of("cluster", self.controller, self.brokers.values(), topics, rows, self.image.version)

    def step(self) -> ClusterDelta:
        """Makes one random change. Checks the delta, and returns it."""
        steps: list[Callable[[], tuple[Transition, ClusterDelta]]] = [self._create, self._register]
        if self.brokers:
            steps += [self._leave, self._control]
        if self.topics:
            steps += [self._alter, self._grow, self._delete, self._place, self._place]
        (image, delta), expected = self.random.choice(steps)()
        assert image.version == delta.version == self.image.version + 1
        has_topics_changed = bool(expected.topics or expected.deleted)
        assert image.topics_version == (image.version if has_topics_changed else self.image.topics_version)
        self.image = image
        assert delta == expected._replace(version=delta.version)
        return delta

    def _some_topic(self) -> Topic:
        return self.random.choice(list(self.topics.values()))

    def _now(self, image: ClusterImage, topic_id: TopicId) -> ClusterDelta:
        topic = image.topic_by_id(topic_id)
        assert topic is not None
        return ClusterDelta(0, topics=(topic,))

    def _create(self) -> tuple[Transition, ClusterDelta]:
        free = [name for name in NAMES if self.image.topic_like(name) is None]
        if not free:
            return self._register()
        topic = a_topic(self.random.choice(free), self.next_id, self.random.randrange(1, 5))
        self.next_id += 1
        rows = [placed(topic.topic_id, number, self.random.choice([1, 2])) for number in range(topic.partitions)]
        self.topics[topic.topic_id] = topic
        self.placements |= {row.key: row for row in rows}
        made = self.image.topic_created(topic, rows)
        return made, self._now(made[0], topic.topic_id)._replace(placements=tuple(rows))

    def _register(self) -> tuple[Transition, ClusterDelta]:
        broker = BrokerEndpoint(BrokerId(self.random.randrange(1, 5)), "host", self.random.randrange(9000, 9100))
        self.brokers[broker.node_id] = broker
        return self.image.broker_registered(broker), ClusterDelta(0, brokers=(broker,))

    def _leave(self) -> tuple[Transition, ClusterDelta]:
        broker = self.brokers.pop(self.random.choice(list(self.brokers)))
        controller = None
        if broker.node_id == self.controller:
            controller = self.controller = NO_CONTROLLER
        expected = ClusterDelta(0, departed=(broker,), controller_id=controller)
        return self.image.broker_left(broker.node_id), expected

    def _control(self) -> tuple[Transition, ClusterDelta]:
        self.controller = self.random.choice(list(self.brokers))
        return self.image.controller_changed(self.controller), ClusterDelta(0, controller_id=self.controller)

    def _alter(self) -> tuple[Transition, ClusterDelta]:
        topic = replace(self._some_topic(), settings={"retention.ms": str(self.image.version)})
        self.topics[topic.topic_id] = topic
        made = self.image.topic_altered(topic.topic_id, topic.settings)
        return made, self._now(made[0], topic.topic_id)

    def _grow(self) -> tuple[Transition, ClusterDelta]:
        topic = self._some_topic()
        more = self.random.randrange(1, 3)
        rows = [placed(topic.topic_id, topic.partitions + number) for number in range(more)]
        self.topics[topic.topic_id] = replace(topic, partitions=topic.partitions + more)
        self.placements |= {row.key: row for row in rows}
        made = self.image.topic_grown(topic.topic_id, rows)
        return made, self._now(made[0], topic.topic_id)._replace(placements=tuple(rows))

    def _delete(self) -> tuple[Transition, ClusterDelta]:
        topic = self._some_topic()
        was = self.image.topic_by_id(topic.topic_id)
        assert was is not None
        del self.topics[topic.topic_id]
        self.placements = {key: row for key, row in self.placements.items() if key.topic_id != topic.topic_id}
        return self.image.topic_deleted(topic.topic_id), ClusterDelta(0, deleted=(was,))

    def _place(self) -> tuple[Transition, ClusterDelta]:
        keys = self.random.sample(sorted(self.placements), min(len(self.placements), self.random.randrange(1, 4)))
        rows = [self.placements[key] for key in keys]
        rows = [
            row._replace(leader_epoch=LeaderEpoch(row.leader_epoch + 1), partition_epoch=row.partition_epoch + 1)
            for row in rows
        ]
        self.placements |= {row.key: row for row in rows}
        return self.image.placements_changed(rows), ClusterDelta(0, placements=tuple(rows))


def seen(image: ClusterImage) -> object:
    """Returns everything that can be found in an image."""
    by_id = [image.topic_by_id(TopicId(UUID(int=number))) for number in range(60)]
    like = [image.topic_like(name) for name in NAMES]
    places = [image.placement(name, number) for name in NAMES for number in range(-1, 9)]
    topics = list(image.topics())
    brokers = list(image.brokers.items())
    named = [image.topic(name) for name in NAMES]
    return image.names, topics, by_id, named, like, places, brokers, image.controller_id


@for_each("seed", range(20))
def test_a_changed_image_equals_one_built_from_the_catalog_rows(seed: int) -> None:
    rows = Rows(Random(seed))
    before: list[tuple[ClusterImage, object]] = []
    for _ in range(40):
        before.append((rows.image, seen(rows.image)))
        rows.step()
        assert seen(rows.image) == seen(rows.scratch())
    for image, what in before:
        assert seen(image) == what
        names = {name for name in NAMES if image.topic(name) != rows.image.topic(name)}
        assert names <= set(rows.image.names_changed_since(image)) <= set(NAMES)


def test_loading_the_catalog_is_one_transition_with_all_topics() -> None:
    cluster = ClusterMetadata.of_single_broker("cluster", ME)
    topics = [a_topic("a", 1, 2), a_topic("b", 2)]
    rows = [placed(topic.topic_id, number) for topic in topics for number in range(topic.partitions)]
    heard: list[ClusterDelta] = []
    cluster.add_listener(lambda image, delta: heard.append(delta))
    cluster.publish(cluster.image.catalog_loaded(topics, rows))
    assert seen(cluster.image) == seen(ClusterImage.of("cluster", BrokerId(1), [ME], topics, rows))
    assert heard == [ClusterDelta(1, topics=tuple(cluster.image.topics()), placements=tuple(rows))]


def test_an_image_can_only_be_replaced_by_its_successor() -> None:
    cluster = ClusterMetadata.of_single_broker("cluster", ME)
    registered = cluster.image.broker_registered(ELSEWHERE)
    cluster.publish(registered)
    with pytest.raises(AssertionError):
        cluster.publish(registered)
    assert cluster.image.version == 1


def test_a_removed_listener_is_not_called_again() -> None:
    cluster = ClusterMetadata.of_single_broker("cluster", ME)
    heard: list[int] = []

    def listener(image: ClusterImage, delta: ClusterDelta) -> None:
        assert image is cluster.image
        heard.append(delta.version)

    cluster.add_listener(listener)
    cluster.publish(cluster.image.broker_registered(ELSEWHERE))
    cluster.remove_listener(listener)
    cluster.publish(cluster.image.broker_registered(ME))
    assert heard == [1]


def test_only_a_registered_broker_becomes_controller_or_leaves() -> None:
    image = ClusterImage.of("cluster", ME.node_id, [ME], (), ())
    with pytest.raises(AssertionError, match="not registered"):
        image.controller_changed(ELSEWHERE.node_id)
    with pytest.raises(AssertionError, match="not registered"):
        image.broker_left(ELSEWHERE.node_id)


@pytest.mark.parametrize(("partition_epoch", "leader_epoch"), [(4, 3), (5, 3), (6, 2)])
def test_the_epochs_of_a_placement_never_decrease(partition_epoch: int, leader_epoch: int) -> None:
    topic = a_topic("a", 1)
    row = placed(topic.topic_id, 0, epoch=3, change=5)
    image = ClusterImage.of("cluster", BrokerId(1), [ME], [topic], [row])
    with pytest.raises(AssertionError):
        image.placements_changed(
            [row._replace(partition_epoch=partition_epoch, leader_epoch=LeaderEpoch(leader_epoch))]
        )


def test_an_image_shares_all_unchanged_topics_with_its_predecessor() -> None:
    topics = [a_topic(f"topic-{number:05}", number + 1) for number in range(2_000)]
    rows = [placed(topic.topic_id, 0) for topic in topics]
    image = ClusterImage.of("cluster", BrokerId(1), [ME], topics, rows)
    changed, _ = image.placements_changed([rows[7]._replace(leader_epoch=LeaderEpoch(1), partition_epoch=1)])
    assert list(changed.names_changed_since(image)) == ["topic-00007"]
    assert changed.names is image.names
    assert [now is before for now, before in zip(changed.topics(), image.topics(), strict=True)].count(False) == 1


_without = PersistentMap.without


@pytest.mark.parametrize("lookup", ["_by_name", "_by_id", "_by_plain_name"])
def test_a_topic_is_deleted_from_all_lookups_or_none(lookup: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = a_topic("a.b", 1)
    image = ClusterImage.of("cluster", BrokerId(1), [ME], [topic], [placed(topic.topic_id, 0)])
    broken = getattr(image, lookup)
    monkeypatch.setattr(PersistentMap, "without", lambda each, key: each if each is broken else _without(each, key))
    with pytest.raises(AssertionError):
        image.topic_deleted(topic.topic_id)
