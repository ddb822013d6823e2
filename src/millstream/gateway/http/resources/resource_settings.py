"""Settings of topics, brokers and groups: shown and changed."""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.http.resources.common_parameters import BrokerParameters, GroupParameters, TopicParameters
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import settings_and_queries, topics
from millstream.sdk.admin.admin_results import ConfigSetting


class SettingView(msgspec.Struct, kw_only=True):
    """`value` is null where it is unset or secret; `own` says that it was set on the thing itself."""

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
    """What to set, and what to unset; all of it is done, or nothing."""

    set: Annotated[dict[str, str], Meta(description="Values by name.")] = msgspec.field(default_factory=dict)
    unset: Annotated[list[str], Meta(description="Names of those that shall have their default again.")] = (
        msgspec.field(default_factory=list)
    )
    validate_only: Annotated[bool, Meta(description="Only say whether that could be done.")] = False


async def get_topic_settings(asked: WebRequest) -> SettingsView:
    parameters: TopicParameters = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    return _all(await topics.topic_settings(cluster, parameters.topic, (), cluster.timeout_s))


async def change_topic_settings(asked: WebRequest) -> SettingsView:
    parameters: TopicParameters = asked.parameters
    change: ChangedSettings = asked.body
    cluster = asked.site.clusters.get(parameters.cluster)
    await topics.alter_topic_settings(
        cluster, parameters.topic, change.set, change.unset, cluster.timeout_s, validate_only=change.validate_only
    )
    return await get_topic_settings(asked)


async def get_group_settings(asked: WebRequest) -> SettingsView:
    parameters: GroupParameters = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    return _all(await settings_and_queries.group_settings(cluster, parameters.group, cluster.timeout_s))


async def change_group_settings(asked: WebRequest) -> SettingsView:
    parameters: GroupParameters = asked.parameters
    change: ChangedSettings = asked.body
    cluster = asked.site.clusters.get(parameters.cluster)
    await settings_and_queries.alter_group_settings(
        cluster, parameters.group, change.set, change.unset, cluster.timeout_s, validate_only=change.validate_only
    )
    return await get_group_settings(asked)


async def get_broker_settings(asked: WebRequest) -> SettingsView:
    parameters: BrokerParameters = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    return _all(await settings_and_queries.broker_settings(cluster, parameters.broker, cluster.timeout_s))


async def change_broker_settings(asked: WebRequest) -> SettingsView:
    parameters: BrokerParameters = asked.parameters
    change: ChangedSettings = asked.body
    cluster = asked.site.clusters.get(parameters.cluster)
    await settings_and_queries.alter_broker_settings(
        cluster, parameters.broker, change.set, change.unset, cluster.timeout_s, validate_only=change.validate_only
    )
    return await get_broker_settings(asked)


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
