"""What has settings that can be asked for: topics, this broker, its loggers, groups, subscriptions to metrics.

Only a topic's settings can be changed. The broker's are given at its start, by flags, environment or file.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple, Protocol

from millstream.broker.config_entries import (
    ConfigEntry,
    ConfigSource,
    client_metrics_settings,
    group_settings,
    topic_defaults_of_broker,
    topic_settings,
)
from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.catalog.catalog import Topic
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import check_topic_name
from millstream.topics.setting_table import SettingKind

SettingsChange = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""From the settings that a topic has set to those that it is to have."""


class ConfigResourceKind(IntEnum):
    """By Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_KINDS = frozenset(ConfigResourceKind)


class Resource(NamedTuple):
    """As a request names it; `kind` may be a number that nothing has."""

    kind: int
    name: str


class AlterableTopics(Protocol):
    """Finds topics and changes their settings."""

    @property
    def defaults(self) -> Mapping[str, str]: ...

    def topics(self) -> Sequence[Topic]: ...

    def topic(self, name: str) -> Topic | None: ...

    async def alter(self, name: str, change: SettingsChange, *, validate_only: bool) -> Topic: ...


class Resources:
    def __init__(
        self, topics: AlterableTopics, identity: BrokerIdentity, at_start: Iterable[ConfigEntry], groups: GroupSettings
    ) -> None:
        """`at_start` are the broker's settings besides those that give topics and groups their defaults."""
        self.topics = topics
        self._identity = identity
        self._at_start = tuple(at_start)
        self._groups = groups

    def names(self, kinds: Sequence[int]) -> Iterator[Resource]:
        """Everything of these kinds that has settings of its own; of all kinds when none is named.

        UNSUPPORTED_VERSION, as Kafka has it, when one is named that does not exist.
        """
        for kind in kinds:
            if kind not in _KINDS:
                raise MillstreamError(ErrorCode.UNSUPPORTED_VERSION, f"there are no resources of kind {kind}")
        wanted = kinds or list(ConfigResourceKind)
        for kind in (ConfigResourceKind.LOGGER, ConfigResourceKind.BROKER):
            if kind in wanted:
                yield Resource(kind, str(self._identity.node_id))
        if ConfigResourceKind.TOPIC in wanted:
            for topic in self.topics.topics():
                yield Resource(ConfigResourceKind.TOPIC, topic.name)

    def settings(self, resource: Resource) -> Iterator[ConfigEntry]:
        """All settings of a resource. UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC or INVALID_REQUEST when there is no
        such resource."""
        kind, name = resource
        if kind == ConfigResourceKind.TOPIC:
            return topic_settings(self._topic(name).settings, self.topics.defaults)
        if kind == ConfigResourceKind.BROKER:
            # Without a number, what was changed for all brokers while they run: nothing can be.
            return self._brokers_own() if name and self._check_number(name) else iter(())
        if kind == ConfigResourceKind.LOGGER:
            self._check_number(name)
            return _loggers()
        if kind == ConfigResourceKind.CLIENT_METRICS:
            _check_named(name, "a subscription to clients' metrics")
            return client_metrics_settings()
        if kind == ConfigResourceKind.GROUP:
            _check_named(name, "a group")
            return group_settings(self._groups)
        raise _unknown_kind(kind)

    async def alter(
        self, resource: Resource, names: Sequence[str], change: SettingsChange, *, validate_only: bool
    ) -> None:
        """Change the settings `names` of a resource. Besides what `settings` and the change itself raise:
        INVALID_REQUEST when a setting is named twice, or cannot be changed while the broker runs."""
        kind, name = resource
        if kind not in _KINDS:
            raise _unknown_kind(kind)
        for each, times in Counter(names).items():
            if times > 1:
                raise MillstreamError(ErrorCode.INVALID_REQUEST, f"{each[:100]} is named {times} times")
        if kind == ConfigResourceKind.TOPIC:
            self._topic(name)
            await self.topics.alter(name, change, validate_only=validate_only)
            return
        self.settings(resource)
        if names:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST,
                f"{names[0][:100]} cannot be changed while the broker runs; what can be set is given at its start",
            )

    def _topic(self, name: str) -> Topic:
        topic = self.topics.topic(name)
        if topic is None:
            check_topic_name(name)
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _brokers_own(self) -> Iterator[ConfigEntry]:
        return chain(self._at_start, topic_defaults_of_broker(self.topics.defaults))

    def _check_number(self, name: str) -> bool:
        if name != str(self._identity.node_id):
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST, f"this is broker {self._identity.node_id}, not {name[:100]!r}"
            )
        return True


def _loggers() -> Iterator[ConfigEntry]:
    level = logging.getLevelName(logging.getLogger("millstream").getEffectiveLevel())
    yield ConfigEntry("root", SettingKind.STRING, level, ConfigSource.LOGGER, "Least severity that is logged.")


def _check_named(name: str, what: str) -> None:
    if not name:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, f"{what} must be named")


def _unknown_kind(kind: int) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_REQUEST, f"there are no resources of kind {kind}")
