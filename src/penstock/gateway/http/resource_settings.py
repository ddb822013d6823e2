"""Settings of topics, brokers and groups: shown and changed."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.gateway.clusters import Member
from penstock.gateway.http.asked import Asked
from penstock.gateway.http.named import OfBroker, OfGroup, OfTopic
from penstock.sdk.admin_answers import ResourceKind, Setting


class ShownSetting(msgspec.Struct, kw_only=True):
    """`value` is null where it is unset or secret; `own` says that it was set on the thing itself."""

    name: str
    value: str | None
    type: str
    source: str
    own: bool
    read_only: bool
    secret: bool
    documentation: str


class ShownSettings(msgspec.Struct, kw_only=True):
    settings: list[ShownSetting]


class ChangedSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What to set, and what to unset; all of it is done, or nothing."""

    set: Annotated[dict[str, str], Meta(description="Values by name.")] = msgspec.field(default_factory=dict)
    unset: Annotated[list[str], Meta(description="Names of those that shall have their default again.")] = (
        msgspec.field(default_factory=list)
    )
    validate_only: Annotated[bool, Meta(description="Only say whether that could be done.")] = False


async def get_topic_settings(asked: Asked) -> ShownSettings:
    parameters: OfTopic = asked.parameters
    member = await asked.site.clusters.get(parameters.cluster).home(parameters.topic)
    return await _described(member, ResourceKind.TOPIC, parameters.topic)


async def change_topic_settings(asked: Asked) -> ShownSettings:
    parameters: OfTopic = asked.parameters
    member = await asked.site.clusters.get(parameters.cluster).home(parameters.topic)
    return await _changed(member, ResourceKind.TOPIC, parameters.topic, asked.body)


async def get_group_settings(asked: Asked) -> ShownSettings:
    parameters: OfGroup = asked.parameters
    member = asked.site.clusters.get(parameters.cluster).members[0]
    return await _described(member, ResourceKind.GROUP, parameters.group)


async def change_group_settings(asked: Asked) -> ShownSettings:
    """Of a cluster whose brokers do not know each other, all of them are told."""
    parameters: OfGroup = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    found = await cluster.all(lambda member: _changed(member, ResourceKind.GROUP, parameters.group, asked.body))
    return found[0]


async def get_broker_settings(asked: Asked) -> ShownSettings:
    parameters: OfBroker = asked.parameters
    member = asked.site.clusters.get(parameters.cluster).members[0]
    return await _described(member, ResourceKind.BROKER, str(parameters.broker))


async def change_broker_settings(asked: Asked) -> ShownSettings:
    parameters: OfBroker = asked.parameters
    member = asked.site.clusters.get(parameters.cluster).members[0]
    return await _changed(member, ResourceKind.BROKER, str(parameters.broker), asked.body)


async def _described(member: Member, kind: ResourceKind, name: str) -> ShownSettings:
    found = await member.client.admin.describe_settings(kind, name, timeout=member.timeout_s)
    return ShownSettings(settings=[_shown(each) for each in found])


async def _changed(member: Member, kind: ResourceKind, name: str, change: ChangedSettings) -> ShownSettings:
    await member.client.admin.alter_settings(
        kind, name, change.set, unset=change.unset, validate_only=change.validate_only, timeout=member.timeout_s
    )
    return await _described(member, kind, name)


def _shown(setting: Setting) -> ShownSetting:
    return ShownSetting(
        name=setting.name,
        value=setting.value,
        type=setting.type,
        source=setting.source,
        own=setting.is_own,
        read_only=setting.is_read_only,
        secret=setting.is_secret,
        documentation=setting.documentation,
    )
