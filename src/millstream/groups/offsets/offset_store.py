"""Stores the committed offsets of all groups in memory. A group has an entry here exactly while it has an offset."""

from collections.abc import Iterable, Iterator

from millstream.groups.records import OffsetKey
from millstream.groups.responses import CommittedOffset

_Partitions = dict[int, CommittedOffset]


class OffsetStore:
    """Committed offsets by group, topic and partition, with an index of the groups that have offsets in each topic."""

    __slots__ = ("_by_topic", "_groups")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, _Partitions]] = {}
        self._by_topic: dict[str, dict[str, None]] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_ids(self) -> Iterable[str]:
        """Returns the ids of all groups that have an offset."""
        return self._groups.keys()

    def topics(self) -> Iterable[str]:
        """Returns each topic in which a group has an offset, once."""
        return self._by_topic.keys()

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        topics = self._groups.get(key.group_id)
        partitions = topics.get(key.topic) if topics else None
        return partitions.get(key.partition) if partitions else None

    def put(self, key: OffsetKey, committed: CommittedOffset) -> None:
        topics = self._groups.setdefault(key.group_id, {})
        partitions = topics.get(key.topic)
        if partitions is None:
            partitions = topics[key.topic] = {}
            self._by_topic.setdefault(key.topic, {})[key.group_id] = None
        partitions[key.partition] = committed

    def remove(self, key: OffsetKey) -> bool:
        """Removes an offset. Returns True if it existed."""
        topics = self._groups.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return False
        if not partitions:
            del topics[key.topic]
            self._remove_reader(key.topic, key.group_id)
        if not topics:
            del self._groups[key.group_id]
        return True

    def of_group(self, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Yields all offsets of a group. The store must not change during the iteration."""
        for topic, partitions in self._groups.get(group_id, {}).items():
            for partition, committed in partitions.items():
                yield OffsetKey(group_id, topic, partition), committed

    def groups_of(self, topic: str) -> Iterable[str]:
        """Returns the groups that have an offset in the topic. The store must not change during the iteration."""
        return self._by_topic.get(topic, ())

    def of_group_in(self, group_id: str, topic: str) -> list[OffsetKey]:
        """Returns the keys of all offsets that a group has in a topic."""
        partitions = self._groups.get(group_id, {}).get(topic, ())
        return [OffsetKey(group_id, topic, partition) for partition in partitions]

    def _remove_reader(self, topic: str, group_id: str) -> None:
        readers = self._by_topic[topic]
        del readers[group_id]
        if not readers:
            del self._by_topic[topic]
