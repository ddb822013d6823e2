"""Removes the committed offsets of topics that the cluster has deleted, in small steps.

Only the cluster image decides whether a topic is deleted. It makes no difference whether this broker serves any of its
partitions.

Many groups may have read one topic, and removing all their offsets in one step would delay other work. An offset that
remains to be removed already counts as removed: no request returns it, and a commit for a recreated topic of the same
name does not mix with it. After a restart, deleted topics are detected by their names. A topic that was recreated
before the removal was complete is detected by the topic ids in the records of the offsets.
"""

from collections.abc import Sequence

from millstream.groups.offsets.offset_store import OffsetStore
from millstream.groups.records import NO_TOPIC, OffsetKey
from millstream.groups.topic_image import TopicImage
from millstream.model.ids import TopicIdBytes


class DeletedTopics:
    """The groups that still have offsets in deleted topics."""

    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets
        self._groups: dict[str, dict[str, None]] = {}
        """Groups that have offsets to remove, by topic. Topics without such groups have no entry."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, topic: str) -> None:
        """Marks all offsets that groups have in this topic for removal."""
        groups = dict.fromkeys(self._offsets.groups_of(topic))
        if groups:
            self._groups.setdefault(topic, {}).update(groups)

    def has(self, group_id: str, topic: str) -> bool:
        """True if the group's offsets in the topic are marked for removal."""
        return group_id in self._groups.get(topic, ())

    def take(self, most: int) -> list[OffsetKey]:
        """Unmarks and returns about `most` keys, which the caller removes now. The keys of one group and topic are
        returned together, so there may be more."""
        keys: list[OffsetKey] = []
        while self._groups and len(keys) < most:
            topic = next(iter(self._groups))
            keys += self.take_of(next(iter(self._groups[topic])), topic)
        return keys

    def take_of(self, group_id: str, topic: str) -> Sequence[OffsetKey]:
        """Unmarks and returns the keys of one group and topic, like `take`."""
        if not self.has(group_id, topic):
            return ()
        del self._groups[topic][group_id]
        if not self._groups[topic]:
            del self._groups[topic]
        return self._offsets.of_group_in(group_id, topic)


class OrphanedOffsets:
    """Collects the offsets of deleted topics during a replay, even if other topics have their names now.

    Invariant: topics are looked up in cluster images that are at least as new as the one at the start of the replay. An
    older image might lack a topic that was created since.
    """

    def __init__(self, topics: TopicImage) -> None:
        self._topics = topics
        self._first_version = topics.version
        self._keys: dict[OffsetKey, None] = {}
        self._is_there: dict[TopicIdBytes, bool] = {NO_TOPIC: True}

    def note(self, key: OffsetKey, topic_id: TopicIdBytes) -> None:
        """Records that an offset was committed in the topic with this id."""
        is_there = self._is_there.get(topic_id)
        if is_there is None:
            assert self._topics.version >= self._first_version, "the version of the cluster image never decreases"
            is_there = self._is_there[topic_id] = self._topics.by_id(topic_id) is not None
        if not is_there:
            self._keys[key] = None
        elif self._keys:
            self._keys.pop(key, None)

    def forget(self, key: OffsetKey) -> None:
        """Records that an offset was removed."""
        self._keys.pop(key, None)

    def take(self) -> list[OffsetKey]:
        """Returns all collected offsets, and clears the collection."""
        keys = list(self._keys)
        self._keys.clear()
        self._is_there = {NO_TOPIC: True}
        return keys
