"""Provides the topics that groups see; a test changes them."""

from collections.abc import Iterable
from hashlib import blake2b

from millstream.groups.topic_image import TopicInfo
from millstream.model.ids import TopicIdBytes


class Topics:
    """A changeable set of topics. Topic ids derive from name and creation count, so that runs are repeatable."""

    def __init__(self, **partitions: int) -> None:
        self.version = 1
        self._made = 0
        self._by_name: dict[str, TopicInfo] = {}
        for name, count in partitions.items():
            self.make(name, count)

    def make(self, name: str, partitions: int = 1) -> TopicInfo:
        self._made += 1
        topic_id = blake2b(f"{name}/{self._made}".encode(), digest_size=16).digest()
        return self._put(TopicInfo(name, TopicIdBytes(topic_id), partitions))

    def grow(self, name: str, partitions: int) -> TopicInfo:
        return self._put(self._by_name[name]._replace(partitions=partitions))

    def delete(self, name: str) -> None:
        del self._by_name[name]
        self.version += 1

    def _put(self, topic: TopicInfo) -> TopicInfo:
        self._by_name[topic.name] = topic
        self.version += 1
        return topic

    def get(self, name: str) -> TopicInfo | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return next((topic for topic in self._by_name.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return sorted(self._by_name)

    def id_of(self, name: str) -> bytes:
        return self._by_name[name].topic_id

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(topic.name, number) for topic in self._by_name.values() for number in range(topic.partitions)}
