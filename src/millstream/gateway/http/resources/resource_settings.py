"""Reads and changes the settings of topics, brokers and groups over HTTP."""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.http.resources.common_parameters import BrokerParameters, GroupParameters, TopicParameters
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import settings_and_queries, topics
from millstream.sdk.admin.admin_results import ConfigSetting


class SettingView(msgspec.Struct, kw_only=True):
    """A setting. `value` is null if unset or secret; `own` is true if it was set on the resource itself."""

    name: str
    value: str | None
    type: str
    source: str
    own: bool
    read_only: bool
    secret: bool
    documentation: str


class SettingsView(msgspec.Struct, kw_only=True):
    settings: list[SettingView]


class ChangedSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Settings to set and to unset. All changes are made, or none."""

    set: Annotated[
        dict[str, str | int | float | bool | list[str]],
        Meta(description="Values to set, by name. Durations and sizes may have units: `7d`, `36h`, `1GiB`."),
    ] = msgspec.field(default_factory=dict)
    unset: Annotated[list[str], Meta(description="Names of settings to reset to their defaults.")] = msgspec.field(
        default_factory=list
    )
    validate_only: Annotated[bool, Meta(description="Check the changes without making them.")] = False


async def get_topic_settings(request: WebRequest) -> SettingsView:
    parameters: TopicParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    return _all(await topics.topic_settings(cluster, parameters.topic, (), cluster.timeout_s))


async def change_topic_settings(request: WebRequest) -> SettingsView:
    parameters: TopicParameters = request.parameters
    change: ChangedSettings = request.body
    cluster = request.site.clusters.get(parameters.cluster)
    await topics.alter_topic_settings(
        cluster, parameters.topic, change.set, change.unset, cluster.timeout_s, validate_only=change.validate_only
    )
    return await get_topic_settings(request)


async def get_group_settings(request: WebRequest) -> SettingsView:
    parameters: GroupParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    return _all(await settings_and_queries.group_settings(cluster, parameters.group, cluster.timeout_s))


async def change_group_settings(request: WebRequest) -> SettingsView:
    parameters: GroupParameters = request.parameters
    change: ChangedSettings = request.body
    cluster = request.site.clusters.get(parameters.cluster)
    await settings_and_queries.alter_group_settings(
        cluster, parameters.group, change.set, change.unset, cluster.timeout_s, validate_only=change.validate_only
    )
    return await get_group_settings(request)


async def get_broker_settings(request: WebRequest) -> SettingsView:
    parameters: BrokerParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    return _all(await settings_and_queries.broker_settings(cluster, parameters.broker, cluster.timeout_s))


async def change_broker_settings(request: WebRequest) -> SettingsView:
    parameters: BrokerParameters = request.parameters
    change: ChangedSettings = request.body
    cluster = request.site.clusters.get(parameters.cluster)
    await settings_and_queries.alter_broker_settings(
        cluster, parameters.broker, change.set, change.unset, cluster.timeout_s, validate_only=change.validate_only
    )
    return await get_broker_settings(request)


def _all(settings: Iterable[ConfigSetting]) -> SettingsView:
    return SettingsView(settings=[_shown(each) for each in settings])


def _shown(setting: ConfigSetting) -> SettingView:
    return SettingView(
        name=setting.name,
        value=setting.value,
        type=setting.type,
        source=setting.source,
        own=setting.is_own,
        read_only=setting.is_read_only,
        secret=setting.is_secret,
        documentation=setting.documentation,
    )
