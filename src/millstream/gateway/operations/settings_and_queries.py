"""Settings of groups and brokers, and the catalog: what the web API and gRPC offer alike. `topics` has topics'."""

from collections.abc import Mapping, Sequence

from millstream.gateway.failures import invalid
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.sdk.admin.admin_results import ConfigSetting, QueryResult, ResourceKind


async def group_settings(cluster: ServedCluster, group: str, timeout_s: float) -> list[ConfigSetting]:
    return await _settings(cluster.members[0], ResourceKind.GROUP, group, timeout_s)


async def alter_group_settings(
    cluster: ServedCluster,
    group: str,
    chosen: Mapping[str, str],
    unset: Sequence[str],
    timeout_s: float,
    *,
    validate_only: bool,
) -> None:
    """Of a cluster whose brokers do not know each other, all of them are told."""

    async def alter(member: ClusterMember) -> None:
        await member.client.admin.alter_settings(
            ResourceKind.GROUP, group, chosen, unset=unset, validate_only=validate_only, timeout=timeout_s
        )

    await cluster.all(alter)


async def broker_settings(cluster: ServedCluster, broker: int, timeout_s: float) -> list[ConfigSetting]:
    """RESOURCE_NOT_FOUND when there is no broker of this number."""
    member = await _member_with(cluster, broker, timeout_s)
    return await _settings(member, ResourceKind.BROKER, str(broker), timeout_s)


async def alter_broker_settings(
    cluster: ServedCluster,
    broker: int,
    chosen: Mapping[str, str],
    unset: Sequence[str],
    timeout_s: float,
    *,
    validate_only: bool,
) -> None:
    """RESOURCE_NOT_FOUND when there is no broker of this number."""
    member = await _member_with(cluster, broker, timeout_s)
    await member.client.admin.alter_settings(
        ResourceKind.BROKER, str(broker), chosen, unset=unset, validate_only=validate_only, timeout=timeout_s
    )


async def run_query(cluster: ServedCluster, sql: str, rows_max: int, timeout_s: float) -> QueryResult:
    """The rows that a statement over the catalog gives; INVALID_REQUEST, saying why, where it cannot run."""
    if len(cluster.members) > 1:
        text = (
            "its brokers have a catalog each, and no statement sees all of them; ask one of them, by `millstream sql`"
        )
        raise invalid("cluster", text)
    return await cluster.members[0].client.admin.query(sql, rows_max=rows_max, timeout=timeout_s)


async def _member_with(cluster: ServedCluster, broker: int, timeout_s: float) -> ClusterMember:
    """The member that knows this broker; any, to say so, where none does."""
    if len(cluster.members) > 1:
        found = await cluster.all(lambda member: member.client.admin.describe_cluster(timeout=timeout_s))
        for member, described in zip(cluster.members, found, strict=True):
            if any(row.node_id == broker for row in described.brokers):
                return member
    return cluster.members[0]


async def _settings(member: ClusterMember, kind: ResourceKind, name: str, timeout_s: float) -> list[ConfigSetting]:
    return await member.client.admin.describe_settings(kind, name, timeout=timeout_s)
