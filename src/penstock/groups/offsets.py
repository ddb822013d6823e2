"""Committed offsets, of groups of all kinds. A group has a place here exactly as long as it has an offset."""

from collections.abc import Iterable, Iterator

from penstock.groups.answers import CommittedOffset
from penstock.groups.records import OffsetKey

_Partitions = dict[int, CommittedOffset]


class OffsetStore:
    """By group, topic and partition."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, _Partitions]] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_ids(self) -> Iterable[str]:
        """Of all groups that have an offset."""
        return self._groups.keys()

    def topics(self) -> Iterable[str]:
        """All in which a group has an offset, each once."""
        return dict.fromkeys(topic for topics in self._groups.values() for topic in topics)

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        topics = self._groups.get(key.group_id)
        partitions = topics.get(key.topic) if topics else None
        return partitions.get(key.partition) if partitions else None

    def put(self, key: OffsetKey, committed: CommittedOffset) -> None:
        self._groups.setdefault(key.group_id, {}).setdefault(key.topic, {})[key.partition] = committed

    def remove(self, key: OffsetKey) -> bool:
        """Whether there was one."""
        topics = self._groups.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return False
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._groups[key.group_id]
        return True

    def of_group(self, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """All of a group's; nothing may be put or removed meanwhile."""
        for topic, partitions in self._groups.get(group_id, {}).items():
            for partition, committed in partitions.items():
                yield OffsetKey(group_id, topic, partition), committed

    def of_topic(self, topic: str) -> Iterator[OffsetKey]:
        """All that groups have in a topic; nothing may be put or removed meanwhile."""
        for group_id, topics in self._groups.items():
            for partition in topics.get(topic, ()):
                yield OffsetKey(group_id, topic, partition)
