"""Shows the groups the topics of the whole cluster, including those that other brokers serve."""

from collections.abc import Sequence
from uuid import UUID

from millstream.catalog.cluster_image import ClusterTopic
from millstream.catalog.cluster_metadata import ClusterMetadata
from millstream.groups.topic_image import TopicInfo
from millstream.model.ids import TopicId, TopicIdBytes
from millstream.model.names import INTERNAL_PREFIX


class ClusterTopics:
    """The topics of the current cluster image. Members can subscribe to internal topics by name, but no regular
    expression matches them."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._names: Sequence[str] = ()
        self._names_version = -1

    @property
    def version(self) -> int:
        return self._cluster.image.topics_version

    def get(self, name: str) -> TopicInfo | None:
        return _info(self._cluster.image.topic(name))

    def by_id(self, topic_id: TopicIdBytes) -> TopicInfo | None:
        return _info(self._cluster.image.topic_by_id(TopicId(UUID(bytes=topic_id))))

    def names(self) -> Sequence[str]:
        image = self._cluster.image
        if self._names_version != image.topics_version:
            self._names = [name for name in image.names if not name.startswith(INTERNAL_PREFIX)]
            self._names_version = image.topics_version
        return self._names


def _info(topic: ClusterTopic | None) -> TopicInfo | None:
    return TopicInfo(topic.name, TopicIdBytes(topic.topic_id.bytes), topic.partitions) if topic is not None else None
