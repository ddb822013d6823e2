"""Topics that are gone while groups still have offsets in them: these are forgotten little by little.

Many groups may have read one topic, and to forget all their offsets at once would hold up everybody else. What is
still to be forgotten counts as forgotten already: nobody is told of it, and a commit for a topic that was made anew
under the same name does not mix with it. After a restart topics that are not there are found again, by their names and,
where a topic was made anew under the same name before all was forgotten, by the ids that offsets are stored with.
"""

from collections.abc import Sequence

from millstream.groups.offsets import OffsetStore
from millstream.groups.records import NO_TOPIC, OffsetKey
from millstream.groups.topic_image import TopicImage


class DeletedTopics:
    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets
        self._groups: dict[str, dict[str, None]] = {}
        """Groups that have offsets to be forgotten, by topic; none that has none."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, topic: str) -> None:
        """Whatever groups have in this topic now is to be forgotten."""
        groups = dict.fromkeys(self._offsets.groups_of(topic))
        if groups:
            self._groups.setdefault(topic, {}).update(groups)

    def has(self, group_id: str, topic: str) -> bool:
        """Whether what the group has in the topic is to be forgotten."""
        return group_id in self._groups.get(topic, ())

    def take(self, most: int) -> list[OffsetKey]:
        """Some of what is to be forgotten, which the caller forgets now; of the last group taken, all."""
        keys: list[OffsetKey] = []
        while self._groups and len(keys) < most:
            topic = next(iter(self._groups))
            keys += self.take_of(next(iter(self._groups[topic])), topic)
        return keys

    def take_of(self, group_id: str, topic: str) -> Sequence[OffsetKey]:
        """As `take`, for one group and topic."""
        if not self.has(group_id, topic):
            return ()
        del self._groups[topic][group_id]
        if not self._groups[topic]:
            del self._groups[topic]
        return self._offsets.of_group_in(group_id, topic)


class OrphanedOffsets:
    """While a log is replayed: offsets in topics that are there no longer, whatever has their names now."""

    def __init__(self, topics: TopicImage) -> None:
        self._topics = topics
        self._keys: dict[OffsetKey, None] = {}
        self._is_there: dict[bytes, bool] = {NO_TOPIC: True}

    def note(self, key: OffsetKey, topic_id: bytes) -> None:
        """An offset was committed in this topic."""
        is_there = self._is_there.get(topic_id)
        if is_there is None:
            is_there = self._is_there[topic_id] = self._topics.by_id(topic_id) is not None
        if not is_there:
            self._keys[key] = None
        elif self._keys:
            self._keys.pop(key, None)

    def forget(self, key: OffsetKey) -> None:
        """Its offset was forgotten."""
        self._keys.pop(key, None)

    def take(self) -> list[OffsetKey]:
        """All of them, once."""
        keys = list(self._keys)
        self._keys.clear()
        self._is_there = {NO_TOPIC: True}
        return keys
