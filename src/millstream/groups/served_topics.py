"""The topics of this broker as groups see them."""

from collections.abc import Sequence
from uuid import UUID

from millstream.catalog.catalog import Topic
from millstream.groups.topic_image import TopicInfo
from millstream.model.names import INTERNAL_PREFIX
from millstream.partition.served.partitions import Partitions


class ServedTopics:
    """What `Partitions` serves. Internal topics can be read by name, but no expression finds them."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._names: Sequence[str] = ()
        self._names_of = -1

    @property
    def version(self) -> int:
        return self._partitions.version

    def get(self, name: str) -> TopicInfo | None:
        return _info(self._partitions.topic(name))

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return _info(self._partitions.topic_by_id(UUID(bytes=topic_id)))

    def names(self) -> Sequence[str]:
        if self._names_of != self._partitions.version:
            names = [topic.name for topic in self._partitions.topics()]
            self._names = [name for name in names if not name.startswith(INTERNAL_PREFIX)]
            self._names_of = self._partitions.version
        return self._names


def _info(topic: Topic | None) -> TopicInfo | None:
    return TopicInfo(topic.name, topic.topic_id.bytes, topic.partitions) if topic is not None else None
