"""Tracks the topics that a group member subscribes to: their names by topic id, and those that do not exist."""

import logging
from collections.abc import Collection, Sequence

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.process.log_event import LogEvent
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.group.member_core import Share
from millstream.sdk.consuming.topic_pattern import TopicNames

LOOKUP_TIMEOUT_S = 10.0

log = logging.getLogger("millstream.sdk.consumer")


class SubscribedTopics:
    """Looks up the topics of one member. With a pattern, topics that do not exist are not reported: none is named."""

    def __init__(self, asking: RetryingCaller, group_id: str, topics: Sequence[str], *, has_pattern: bool) -> None:
        self.counts: dict[TopicId, int] = {}
        """The number of partitions of each topic when this member first saw it; others were added later."""
        self.missing: Sequence[str] = ()
        """The topics that did not exist at the last lookup."""
        self._cluster = asking.cluster
        self._group_id = group_id
        self._topics = topics
        self._all_names = TopicNames(asking) if has_pattern else None
        self._existed: set[str] = set()

    def reason(self, *, is_waiting: bool) -> str:
        """Describe the deleted topics. If there are none and the member waits, describe those that do not exist yet."""
        deleted = [topic for topic in self.missing if topic in self._existed]
        if deleted:
            return f"these topics do not exist any more: {', '.join(deleted)}"
        return f"these topics do not exist yet: {', '.join(self.missing)}" if self.missing and is_waiting else ""

    def log_missing(self) -> None:
        """Log the topics that do not exist when the member joins."""
        if self.missing:
            names = ",".join(self.missing)
            log.warning(LogEvent("subscribed topics do not exist yet", group=self._group_id, topics=names))

    async def names(self, target: Share, read: Collection[TopicId] = ()) -> dict[TopicId, str]:
        """Map the ids of existing topics to names, for the partitions of `target`.

        Looks the topics up again if `target` has an unknown topic, or has no partition of a topic that the member
        reads: it may have been deleted.
        """
        if self._all_names is not None:
            return await self._all_names.covering(target, self.counts, Deadline(LOOKUP_TIMEOUT_S))
        assigned = {topic_id for topic_id, _ in target}
        names = await self._existing()
        if not assigned <= names.keys() or not assigned.issuperset(read):
            for topic in self._topics:
                self._cluster.forget(topic)
            names = await self._existing()
        return names

    async def _existing(self) -> dict[TopicId, str]:
        names: dict[TopicId, str] = {}
        for topic, view in (await self._cluster.topics(self._topics, Deadline(LOOKUP_TIMEOUT_S))).items():
            if not isinstance(view, MillstreamError):
                names[TopicId(view.topic_id)] = topic
                self.counts.setdefault(TopicId(view.topic_id), len(view.partitions))
            elif view.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise view
        missing = sorted(set(self._topics) - set(names.values()))
        for topic in missing:
            if topic in self._existed and topic not in self.missing:
                log.warning(LogEvent("topic missing", group=self._group_id, topic=topic))
        self.missing = missing
        self._existed.update(names.values())
        return names
