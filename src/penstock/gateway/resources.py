"""Settings of groups and brokers: what the web API and gRPC offer alike. `topics` has those of topics."""

from collections.abc import Mapping, Sequence

from penstock.gateway.clusters import Cluster, Member
from penstock.sdk.admin_answers import ResourceKind, Setting


async def group_settings(cluster: Cluster, group: str, timeout_s: float) -> list[Setting]:
    return await _settings(cluster.members[0], ResourceKind.GROUP, group, timeout_s)


async def alter_group_settings(
    cluster: Cluster,
    group: str,
    chosen: Mapping[str, str],
    unset: Sequence[str],
    timeout_s: float,
    *,
    validate_only: bool,
) -> None:
    """Of a cluster whose brokers do not know each other, all of them are told."""

    async def alter(member: Member) -> None:
        await member.client.admin.alter_settings(
            ResourceKind.GROUP, group, chosen, unset=unset, validate_only=validate_only, timeout=timeout_s
        )

    await cluster.all(alter)


async def broker_settings(cluster: Cluster, broker: int, timeout_s: float) -> list[Setting]:
    """RESOURCE_NOT_FOUND when there is no broker of this number."""
    return await _settings(cluster.members[0], ResourceKind.BROKER, str(broker), timeout_s)


async def alter_broker_settings(
    cluster: Cluster,
    broker: int,
    chosen: Mapping[str, str],
    unset: Sequence[str],
    timeout_s: float,
    *,
    validate_only: bool,
) -> None:
    await cluster.members[0].client.admin.alter_settings(
        ResourceKind.BROKER, str(broker), chosen, unset=unset, validate_only=validate_only, timeout=timeout_s
    )


async def _settings(member: Member, kind: ResourceKind, name: str, timeout_s: float) -> list[Setting]:
    return await member.client.admin.describe_settings(kind, name, timeout=timeout_s)
