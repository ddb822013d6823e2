"""Assigns the traffic figures of topics: the first 1,000 topics have their own, and later ones share one.

Clients can create any number of topics, and each label value of a metric costs memory in every monitoring system.

Invariants: at most `own_max` topics have figures of their own. The sum of all figures never decreases: the figures of a
deleted topic are added to the shared ones. A topic keeps its figures until it is deleted.
"""

from millstream.model.ids import TopicId
from millstream.model.names import INTERNAL_PREFIX
from millstream.partition.leadership import TopicTraffic

OWN_MAX = 1_000
OTHER = f"{INTERNAL_PREFIX}other__"
"""The label of the shared figures. No client can create a topic of this name."""


class TopicFigures:
    """The figures of all topics of a broker. Reads of a deleted topic that are answered later do not count."""

    def __init__(self, own_max: int = OWN_MAX) -> None:
        self._own_max = own_max
        self._shared = TopicTraffic()
        self._names: dict[TopicId, str] = {}
        """The topics with figures of their own."""
        self._traffic: dict[TopicId, TopicTraffic] = {}

    def of(self, name: str, topic_id: TopicId) -> TopicTraffic:
        """Return the figures in which the leaderships of a topic count."""
        traffic = self._traffic.get(topic_id)
        if traffic is None:
            if len(self._names) < self._own_max:
                self._names[topic_id] = name
                traffic = TopicTraffic()
            else:
                traffic = self._shared
            self._traffic[topic_id] = traffic
            assert len(self._names) <= self._own_max, "a bounded number of topics have figures of their own"
        return traffic

    def deleted(self, topic_id: TopicId) -> None:
        """Add the figures of a deleted topic to the shared ones. A later topic can have figures of its own instead."""
        traffic = self._traffic.pop(topic_id, None)
        if traffic is not None and self._names.pop(topic_id, None) is not None:
            self._shared.add(traffic)

    def snapshot(self) -> list[tuple[str, TopicTraffic]]:
        """Return the figures by topic name.

        The shared figures come first. So a topic that is deleted while the list is read is not counted twice.
        """
        return [(OTHER, self._shared), *((name, self._traffic[topic_id]) for topic_id, name in self._names.items())]
