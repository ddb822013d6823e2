"""Subscribes to all topics whose names match a regular expression.

An expression must match the whole name. Without a group the client matches names with Python's `re`. In a group the
coordinator matches them with RE2, which has no backreferences and no look-around. Internal topics never match.
"""

import re
from collections.abc import Mapping
from functools import partial

from millstream.model.ids import TopicId
from millstream.sdk.arguments import wrong
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.group.member_core import Share
from millstream.sdk.responses import TopicView

_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}


class TopicPattern:
    """A regular expression of topic names. Raises INVALID_SETTING for an unusable one."""

    def __init__(self, pattern: str | re.Pattern[str], *, is_matched_by_broker: bool) -> None:
        self._compiled: re.Pattern[str] | None = None
        if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
            self.expression = _with_flags(pattern)
            """The expression in RE2's syntax."""
            self._compiled = pattern
        elif isinstance(pattern, str) and pattern:
            self.expression = pattern
            if not is_matched_by_broker:  # The broker's syntax differs from Python's, so it checks the text itself.
                try:
                    self._compiled = re.compile(pattern)
                except re.error as error:
                    raise wrong("pattern", pattern, f"it is not a regular expression: {error}") from None
        else:
            raise wrong("pattern", pattern, "it must be a regular expression, as str or re.Pattern of str")

    def matches(self, name: str) -> bool:
        """Return whether the expression matches the whole name."""
        assert self._compiled is not None, "an expression that the broker matches is not matched here"
        return self._compiled.fullmatch(name) is not None


def _with_flags(pattern: re.Pattern[str]) -> str:
    flags = re.RegexFlag(pattern.flags) & ~re.UNICODE
    known = [letter for flag, letter in _FLAGS.items() if flags & flag]
    for flag in _FLAGS:
        flags &= ~flag
    if flags:
        raise wrong("pattern", pattern, "its flags may be IGNORECASE, MULTILINE and DOTALL")
    return f"(?{''.join(known)}){pattern.pattern}" if known else pattern.pattern


class TopicNames:
    """Maps topic ids to names for a group member, whose coordinator matches the pattern."""

    def __init__(self, asking: RetryingCaller) -> None:
        self._asking = asking
        self._names: dict[TopicId, str] = {}

    async def covering(self, share: Share, counts: dict[TopicId, int], deadline: Deadline) -> dict[TopicId, str]:
        """Return the names of all topics; looks them up again if the share has an unknown id.

        Adds to `counts` the number of partitions of each new topic when the first lookup found it. It is 0 for a topic
        that was created later, all of whose partitions are read from their beginning.
        """
        if not self._names or not {topic_id for topic_id, _ in share} <= self._names.keys():
            is_first = not self._names
            topics = await every_topic(self._asking, deadline)
            self._names = {TopicId(view.topic_id): name for name, view in topics.items()}
            for view in topics.values():
                counts.setdefault(TopicId(view.topic_id), len(view.partitions) if is_first else 0)
        return self._names


async def every_topic(asking: RetryingCaller, deadline: Deadline) -> Mapping[str, TopicView]:
    """Return the metadata of all topics that are not internal."""
    view = await asking.retrying(partial(asking.cluster.refresh, None, deadline), deadline)
    return {name: topic for name, topic in view.topics.items() if not topic.is_internal and not topic.error_number}
