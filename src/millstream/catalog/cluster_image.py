"""Describes the cluster as of one version: its brokers and controller, its topics, and the placement of each partition.

The image contains the topics that exist in the cluster. It contains neither the local replicas nor the partitions that
this broker leads (see `millstream.partition.served`).

An image never changes. Each transition is named after an event, and returns the next image and a delta that lists
exactly the changes. The next image shares all unchanged parts with the previous one.

Invariants:
- The version rises by one with every transition.
- A topic is found by its name, its id and its plain name, or by none of them.
- A topic has one placement for each partition, in their order.
- The controller is one of the brokers, or `NO_CONTROLLER`.
- A changed placement has a higher partition epoch, and its leader epoch never decreases.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from millstream.catalog.catalog import Placement, Topic, TopicState
from millstream.catalog.persistent_map import PersistentMap
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId, TopicId
from millstream.model.names import INTERNAL_PREFIX

NO_CONTROLLER = BrokerId(-1)
"""The controller id while no controller is known, as in Kafka's responses."""


class ClusterTopic(Topic, frozen=True):
    """A topic that clients can use, with the placement of each partition."""

    placements: tuple[Placement, ...] = ()

    @property
    def is_internal(self) -> bool:
        return self.name.startswith(INTERNAL_PREFIX)


class ClusterDelta(NamedTuple):
    """The difference between an image and the one before it."""

    version: int
    topics: tuple[ClusterTopic, ...] = ()
    """Topics that were created, have more partitions or have other settings, in their new state."""
    placements: tuple[Placement, ...] = ()
    """New partitions, and partitions with another leader, epoch, replicas or in-sync replicas, in their new state."""
    deleted: tuple[ClusterTopic, ...] = ()
    """Deleted topics, in their last state."""
    brokers: tuple[BrokerEndpoint, ...] = ()
    """Brokers that are new or have another address."""
    departed: tuple[BrokerEndpoint, ...] = ()
    """Brokers that have left, with their last address."""
    controller_id: BrokerId | None = None
    """The new controller, or `NO_CONTROLLER`; None if it has not changed."""


class ClusterImage(Struct, frozen=True, eq=False):
    """The brokers, topics and placements of the cluster. `of` builds the first image; transitions return all others."""

    cluster_id: str
    controller_id: BrokerId
    brokers: Mapping[BrokerId, BrokerEndpoint]
    """Brokers by node id, in the order of these ids."""
    names: tuple[str, ...]
    """The names of all topics, sorted."""
    version: int
    topics_version: int
    """The version in which a topic was last created, deleted or altered, or got more partitions."""
    _by_name: PersistentMap[str, ClusterTopic]
    _by_id: PersistentMap[TopicId, ClusterTopic]
    _by_plain_name: PersistentMap[str, str]

    @classmethod
    def of(
        cls,
        cluster_id: str,
        controller_id: BrokerId,
        brokers: Iterable[BrokerEndpoint],
        topics: Iterable[Topic],
        placements: Iterable[Placement],
        version: int = 0,
    ) -> "ClusterImage":
        """Builds the image from the rows of a catalog. Leaves out topics that are not ready or have no partitions, and
        partitions of an unfinished growth."""
        rows: dict[TopicId, list[Placement]] = defaultdict(list)
        for placement in placements:
            rows[placement.key.topic_id].append(placement)
        placed = [
            placed_topic(topic, sorted(rows[topic.topic_id], key=_number)[: topic.partitions])
            for topic in topics
            if topic.state is TopicState.READY and topic.topic_id in rows
        ]
        return cls(
            cluster_id,
            controller_id,
            _by_node_id(brokers),
            tuple(sorted(topic.name for topic in placed)),
            version,
            version,
            PersistentMap.of((topic.name, topic) for topic in placed),
            PersistentMap.of((topic.topic_id, topic) for topic in placed),
            PersistentMap.of((plain_name(topic.name), topic.name) for topic in placed),
        )

    # Lookups.

    def topic(self, name: str) -> ClusterTopic | None:
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: TopicId) -> ClusterTopic | None:
        return self._by_id.get(topic_id)

    def topic_like(self, name: str) -> ClusterTopic | None:
        """Returns the topic of this name, or one whose name differs from it only in dots and underscores."""
        return self._by_name.get(name) or self._by_name.get(self._by_plain_name.get(plain_name(name)) or "")

    def topics(self) -> Iterator[ClusterTopic]:
        """Yields all topics, ordered by name."""
        for name in self.names:
            topic = self._by_name.get(name)
            assert topic is not None, "every listed topic can be found by its name"
            yield topic

    def placement(self, topic: str | TopicId, number: int) -> Placement | None:
        """Returns the placement of a partition, by the name or the id of its topic; None if it does not exist."""
        found = self._by_name.get(topic) if isinstance(topic, str) else self._by_id.get(topic)
        return found.placements[number] if found is not None and 0 <= number < found.partitions else None

    def names_changed_since(self, older: "ClusterImage") -> Iterator[str]:
        """Yields the names of topics that were created, deleted or changed in any way since an older image."""
        return self._by_name.keys_changed_since(older._by_name)

    # Transitions.

    def catalog_loaded(self, topics: Iterable[Topic], placements: Iterable[Placement]) -> "Transition":
        """Adds the topics of the catalog, which a broker reads when it starts."""
        assert not self.names, "topics are loaded once"
        image = self.of(
            self.cluster_id, self.controller_id, self.brokers.values(), topics, placements, self.version + 1
        )
        loaded = tuple(image.topics())
        placed = tuple(placement for topic in loaded for placement in topic.placements)
        return self._followed_by(image, ClusterDelta(image.version, topics=loaded, placements=placed))

    def broker_registered(self, broker: BrokerEndpoint) -> "Transition":
        """Adds a broker, or changes its address."""
        others = (each for each in self.brokers.values() if each.node_id != broker.node_id)
        image = replace(self, version=self.version + 1, brokers=_by_node_id((*others, broker)))
        return self._followed_by(image, ClusterDelta(image.version, brokers=(broker,)))

    def broker_left(self, node_id: BrokerId) -> "Transition":
        """Removes a broker. If it was the controller, there is none until `controller_changed`.

        Placements do not change. The partitions that this broker leads are unavailable until `placements_changed` moves
        their leadership.
        """
        assert node_id in self.brokers, f"broker {node_id} is not registered"
        others = (each for each in self.brokers.values() if each.node_id != node_id)
        controller_id = NO_CONTROLLER if self.controller_id == node_id else self.controller_id
        image = replace(self, version=self.version + 1, brokers=_by_node_id(others), controller_id=controller_id)
        new_controller = controller_id if controller_id != self.controller_id else None
        return self._followed_by(
            image, ClusterDelta(image.version, departed=(self.brokers[node_id],), controller_id=new_controller)
        )

    def controller_changed(self, node_id: BrokerId) -> "Transition":
        """Makes one of the brokers the controller."""
        assert node_id in self.brokers, f"broker {node_id} is not registered"
        image = replace(self, version=self.version + 1, controller_id=node_id)
        return self._followed_by(image, ClusterDelta(image.version, controller_id=node_id))

    def topic_created(self, topic: Topic, placements: Sequence[Placement]) -> "Transition":
        assert self.topic_by_id(topic.topic_id) is self.topic(topic.name) is None, "a new topic has a new name and id"
        created = placed_topic(topic, placements)
        names = list(self.names)
        insort(names, created.name)
        plain = self._by_plain_name.having(plain_name(created.name), created.name)
        image = replace(self._defining(created), names=tuple(names), _by_plain_name=plain)
        assert image._knows(created), "a created topic can be found"
        return self._followed_by(image, ClusterDelta(image.version, topics=(created,), placements=created.placements))

    def topic_altered(self, topic_id: TopicId, settings: Mapping[str, str]) -> "Transition":
        """Replaces the settings of a topic."""
        altered = replace(self._existing(topic_id), settings=settings)
        image = self._defining(altered)
        return self._followed_by(image, ClusterDelta(image.version, topics=(altered,)))

    def topic_grown(self, topic_id: TopicId, added: Sequence[Placement]) -> "Transition":
        """Adds partitions to a topic, after the existing ones."""
        topic = self._existing(topic_id)
        grown = placed_topic(topic, (*topic.placements, *added))
        image = self._defining(grown)
        return self._followed_by(image, ClusterDelta(image.version, topics=(grown,), placements=tuple(added)))

    def topic_deleted(self, topic_id: TopicId) -> "Transition":
        topic = self._existing(topic_id)
        at, plain = bisect_left(self.names, topic.name), plain_name(topic.name)
        by_plain_name = self._by_plain_name
        if by_plain_name.get(plain) == topic.name:
            by_plain_name = by_plain_name.without(plain)
        image = replace(
            self,
            version=self.version + 1,
            topics_version=self.version + 1,
            names=self.names[:at] + self.names[at + 1 :],
            _by_name=self._by_name.without(topic.name),
            _by_id=self._by_id.without(topic_id),
            _by_plain_name=by_plain_name,
        )
        assert not image._knows(topic), "a deleted topic cannot be found"
        return self._followed_by(image, ClusterDelta(image.version, deleted=(topic,)))

    def placements_changed(self, changed: Sequence[Placement]) -> "Transition":
        """Changes the leader, replicas or in-sync replicas of partitions."""
        by_topic: dict[TopicId, list[Placement]] = defaultdict(list)
        for placement in changed:
            by_topic[placement.key.topic_id].append(placement)
        by_name, by_id = self._by_name, self._by_id
        for topic_id, rows in by_topic.items():
            topic = self._existing(topic_id)
            topic = replace(topic, placements=_changed(topic.placements, rows))
            by_name, by_id = by_name.having(topic.name, topic), by_id.having(topic_id, topic)
        image = replace(self, version=self.version + 1, _by_name=by_name, _by_id=by_id)
        return self._followed_by(image, ClusterDelta(image.version, placements=tuple(changed)))

    def _followed_by(self, image: "ClusterImage", delta: ClusterDelta) -> "Transition":
        assert image.version == delta.version == self.version + 1, "the version rises by one"
        return image, delta

    def _knows(self, topic: Topic) -> bool:
        """Returns True if the topic is found by its name, its id and its plain name; asserts that all three agree."""
        name, plain = topic.name, self._by_plain_name.get(plain_name(topic.name))
        found, found_by_id = self._by_name.get(name), self._by_id.get(topic.topic_id)
        assert found is found_by_id, f"topic {name} is not found both by name and by id"
        assert (found is None and plain != name) or (found is not None and plain is not None), f"plain name of {name}"
        return found is not None

    def _existing(self, topic_id: TopicId) -> ClusterTopic:
        topic = self._by_id.get(topic_id)
        assert topic is not None, f"topic {topic_id} does not exist"
        return topic

    def _defining(self, topic: ClusterTopic) -> "ClusterImage":
        image = replace(
            self,
            version=self.version + 1,
            topics_version=self.version + 1,
            _by_name=self._by_name.having(topic.name, topic),
            _by_id=self._by_id.having(topic.topic_id, topic),
        )
        assert image.topic(topic.name) is image.topic_by_id(topic.topic_id) is topic, "a topic is found by name and id"
        return image


Transition = tuple[ClusterImage, ClusterDelta]
"""The next image, and its difference from the previous one."""


def placed_topic(topic: Topic, placements: Sequence[Placement]) -> ClusterTopic:
    """Returns a ready topic with these partitions."""
    assert all(each.key == (topic.topic_id, number) for number, each in enumerate(placements)), (
        "placements are numbered from 0"
    )
    return ClusterTopic(
        topic.name,
        topic.topic_id,
        len(placements),
        topic.settings,
        created_ms=topic.created_ms,
        placements=tuple(placements),
    )


def plain_name(name: str) -> str:
    """Returns a topic's name with underscores for dots, as metrics show it. Two topics must not have the same plain
    name."""
    return name.replace(".", "_")


def _by_node_id(brokers: Iterable[BrokerEndpoint]) -> Mapping[BrokerId, BrokerEndpoint]:
    return MappingProxyType({broker.node_id: broker for broker in sorted(brokers)})


def _changed(placements: tuple[Placement, ...], changed: Sequence[Placement]) -> tuple[Placement, ...]:
    rows = list(placements)
    for placement in changed:
        before = rows[placement.key.partition]
        assert placement.partition_epoch > before.partition_epoch, f"{placement} is not newer than {before}"
        assert placement.leader_epoch >= before.leader_epoch, f"{placement} has an older leader epoch than {before}"
        rows[placement.key.partition] = placement
    return tuple(rows)


def _number(placement: Placement) -> int:
    return placement.key.partition
