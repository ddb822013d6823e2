"""The topics and partitions that are served, as they are found by name, id and number.

Invariant: a topic is under its name, its id and its plain form, with all of its partitions, or under none of them.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from millstream.catalog.catalog import Topic
from millstream.partition.partition import Partition


def plain_name(name: str) -> str:
    """What a name becomes where dots are not allowed, as in the names of metrics: two topics must not share it."""
    return name.replace(".", "_")


class PartitionRegistry:
    """Find. `version` changes whenever a topic, its settings or a leadership has changed."""

    def __init__(self) -> None:
        self.version = 0
        self.on_change: list[Callable[[Sequence[str]], None]] = []
        """Called whenever `version` has changed, with the names of the topics that are gone."""
        self._topics: dict[str, Topic] = {}
        self._by_name: dict[str, tuple[Partition, ...]] = {}
        self._by_id: dict[UUID, tuple[Partition, ...]] = {}
        self._by_plain_name: dict[str, str] = {}
        self._count = 0

    def get(self, topic: str, number: int) -> Partition | None:
        served = self._by_name.get(topic)
        return served[number] if served is not None and 0 <= number < len(served) else None

    def get_by_id(self, topic_id: UUID, number: int) -> Partition | None:
        served = self._by_id.get(topic_id)
        return served[number] if served is not None and 0 <= number < len(served) else None

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        served = self._by_id.get(topic_id)
        return self._topics.get(served[0].topic) if served else None

    def topic_like(self, name: str) -> Topic | None:
        """The topic of this name, or one whose name differs from it in nothing but dots and underscores."""
        return self._topics.get(name) or self._topics.get(self._by_plain_name.get(plain_name(name), ""))

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def of(self, topic: str) -> Sequence[Partition]:
        """The partitions of a topic, by number; none of an unknown one."""
        return self._by_name.get(topic, ())

    def all(self) -> list[Partition]:
        return [partition for served in self._by_name.values() for partition in served]

    @property
    def count(self) -> int:
        """How many partitions are served."""
        return self._count

    def _put(self, topic: Topic, served: tuple[Partition, ...]) -> None:
        """Serve a topic with these partitions, in place of what it had before."""
        self._count += len(served) - len(self._by_name.get(topic.name, ()))
        self._topics[topic.name] = topic
        self._by_name[topic.name] = self._by_id[topic.topic_id] = served
        self._by_plain_name[plain_name(topic.name)] = topic.name
        self._changed()

    def _take_out(self, topic: Topic) -> tuple[Partition, ...]:
        """Serve a topic no longer, and give its partitions."""
        del self._topics[topic.name], self._by_id[topic.topic_id]
        if self._by_plain_name.get(plain_name(topic.name)) == topic.name:
            del self._by_plain_name[plain_name(topic.name)]
        served = self._by_name.pop(topic.name)
        self._count -= len(served)
        self._changed(deleted=(topic.name,))
        return served

    def _changed(self, deleted: Sequence[str] = ()) -> None:
        self.version += 1
        for listener in list(self.on_change):
            listener(deleted)
