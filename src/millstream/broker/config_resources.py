"""Finds and alters the settings of topics, this broker, its loggers, groups and client metrics subscriptions.

The settings of topics and groups can be altered. The broker's settings are fixed at its start, by flags, environment
or file.
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
from millstream.broker.dispatch.capabilities import ClusterNode, ImageSource
from millstream.catalog.catalog import Topic
from millstream.groups.group_configs import GroupConfigs
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import check_topic_name
from millstream.model.rights import ON_CLUSTER, Right
from millstream.topics.setting_table import SettingKind

SettingsChange = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""Maps the current settings of a topic or group to its new settings."""


class ConfigResourceKind(IntEnum):
    """Kafka's numbers for the kinds of resources."""

    TOPIC = 2
    BROKER = 4
    LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_KINDS = frozenset(ConfigResourceKind)
_READ: Mapping[int, Right] = {ConfigResourceKind.TOPIC: Right.TOPICS_READ, ConfigResourceKind.GROUP: Right.GROUPS_READ}
_ALTER: Mapping[int, Right] = {
    ConfigResourceKind.TOPIC: Right.TOPICS_ADMIN,
    ConfigResourceKind.GROUP: Right.GROUPS_WRITE,
}
"""The rights on topics and groups. All other resources require a right on the cluster."""


class Resource(NamedTuple):
    """A resource that a request names. `kind` may be a number that is no `ConfigResourceKind`."""

    kind: int
    name: str


class AlterableTopics(ImageSource, Protocol):
    """Finds topics and changes their settings."""

    @property
    def defaults(self) -> Mapping[str, str]: ...

    async def alter(self, name: str, change: SettingsChange, *, validate_only: bool) -> Topic: ...


class Resources:
    def __init__(
        self, topics: AlterableTopics, cluster: ClusterNode, at_start: Iterable[ConfigEntry], groups: GroupConfigs
    ) -> None:
        """`at_start` holds the broker's settings that are not defaults of topics or groups."""
        self.topics = topics
        self._cluster = cluster
        self._at_start = tuple(at_start)
        self._groups = groups

    def names(self, kinds: Sequence[int]) -> Iterator[Resource]:
        """Yield the resources of these kinds that have settings of their own. No kinds means all kinds.

        Raises UNSUPPORTED_VERSION, as Kafka does, for an unknown kind.
        """
        for kind in kinds:
            if kind not in _KINDS:
                raise MillstreamError(ErrorCode.UNSUPPORTED_VERSION, f"resource type {kind} does not exist")
        wanted = kinds or list(ConfigResourceKind)
        for kind in (ConfigResourceKind.LOGGER, ConfigResourceKind.BROKER):
            if kind in wanted:
                yield Resource(kind, str(self._cluster.node_id))
        if ConfigResourceKind.TOPIC in wanted:
            for name in self.topics.image.names:
                yield Resource(ConfigResourceKind.TOPIC, name)
        if ConfigResourceKind.GROUP in wanted:
            for name in self._groups.groups:
                yield Resource(ConfigResourceKind.GROUP, name)

    def settings(self, resource: Resource, access: Access) -> Iterator[ConfigEntry]:
        """Return all settings of a resource.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC or INVALID_REQUEST if the resource does not exist, and an
        authorization error if the principal may not read it.
        """
        _check(access, _READ.get(resource.kind, Right.CLUSTER_READ), resource)
        return self._settings(resource)

    def _settings(self, resource: Resource) -> Iterator[ConfigEntry]:
        kind, name = resource
        if kind == ConfigResourceKind.TOPIC:
            return topic_settings(self._topic(name).settings, self.topics.defaults)
        if kind == ConfigResourceKind.BROKER:
            # An empty name asks for settings that were altered at run time for all brokers. There are none.
            return self._brokers_own() if name and self._check_number(name) else iter(())
        if kind == ConfigResourceKind.LOGGER:
            self._check_number(name)
            return _loggers()
        if kind == ConfigResourceKind.CLIENT_METRICS:
            _check_named(name, "a client metrics subscription")
            return client_metrics_settings()
        if kind == ConfigResourceKind.GROUP:
            _check_named(name, "a group")
            return group_settings(self._groups.broker, self._groups.own(name))
        raise _unknown_kind(kind)

    async def alter(
        self, resource: Resource, names: Sequence[str], change: SettingsChange, access: Access, *, validate_only: bool
    ) -> None:
        """Change the settings `names` of a resource.

        Raises the errors of `settings`, of `change` and of `GroupConfigs.alter`, INVALID_CONFIG for an unknown setting
        of a broker, and INVALID_REQUEST if a setting is named twice or cannot be changed while the broker runs.
        """
        _check(access, _ALTER.get(resource.kind, Right.CLUSTER_ADMIN), resource)
        kind, name = resource
        if kind not in _KINDS:
            raise _unknown_kind(kind)
        for each, times in Counter(names).items():
            if times > 1:
                raise MillstreamError(ErrorCode.INVALID_REQUEST, f"the request names {each[:100]} {times} times")
        if kind == ConfigResourceKind.TOPIC:
            self._topic(name)
            await self.topics.alter(name, change, validate_only=validate_only)
            return
        known = self._settings(resource)
        if kind == ConfigResourceKind.GROUP:
            await self._groups.alter(name, change, validate_only=validate_only)
            return
        if kind == ConfigResourceKind.BROKER:
            _check_broker_settings(names, [entry.name for entry in known])
        if names:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST,
                f"{names[0][:100]} cannot be changed while the broker runs; set it in the configuration and restart",
            )

    def _topic(self, name: str) -> Topic:
        topic = self.topics.image.topic(name)
        if topic is None:
            check_topic_name(name)
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        return topic

    def _brokers_own(self) -> Iterator[ConfigEntry]:
        return chain(self._at_start, topic_defaults_of_broker(self.topics.defaults))

    def _check_number(self, name: str) -> bool:
        if name != str(self._cluster.node_id):
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST, f"this is broker {self._cluster.node_id}, not {name[:100]!r}"
            )
        return True


def _check_broker_settings(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise INVALID_CONFIG for an unknown setting of a broker. The defaults of all brokers have no `known` names."""
    for name in names:
        if known and name not in known:
            from difflib import get_close_matches  # only needed for an error message

            close = get_close_matches(name[:100], known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{name[:100]}: there is no such broker setting{hint}")


def _check(access: Access, right: Right, resource: Resource) -> None:
    access.check(right, "" if right in ON_CLUSTER else resource.name)


def _loggers() -> Iterator[ConfigEntry]:
    level = logging.getLevelName(logging.getLogger("millstream").getEffectiveLevel())
    yield ConfigEntry("root", SettingKind.STRING, level, ConfigSource.LOGGER, "Minimum severity of logged messages.")


def _check_named(name: str, kind: str) -> None:
    if not name:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, f"the name of {kind} is empty")


def _unknown_kind(kind: int) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_REQUEST, f"resource type {kind} does not exist")
