"""Reads and changes group and broker settings, and queries the catalog; shared by the web API and gRPC.

Topic settings are in `topics`.
"""

from collections.abc import Mapping, Sequence

from millstream.gateway.failures import TitledError, invalid, setting_failures
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.setting_values import SettingValue
from millstream.sdk.admin.admin_results import ConfigSetting, QueryResult, ResourceKind


async def group_settings(cluster: ServedCluster, group: str, timeout_s: float) -> list[ConfigSetting]:
    return await _settings(cluster.members[0], ResourceKind.GROUP, group, timeout_s)


async def alter_group_settings(
    cluster: ServedCluster,
    group: str,
    chosen: Mapping[str, SettingValue],
    unset: Sequence[str],
    timeout_s: float,
    *,
    validate_only: bool,
) -> None:
    """Change a group's settings at every member of the cluster."""

    async def alter(member: ClusterMember) -> None:
        await member.client.admin.alter_settings(
            ResourceKind.GROUP, group, chosen, unset=unset, validate_only=validate_only, timeout=timeout_s
        )

    with setting_failures(chosen, unset):
        await cluster.all(alter)


async def broker_settings(cluster: ServedCluster, broker: int, timeout_s: float) -> list[ConfigSetting]:
    """Return the broker's settings. Raises RESOURCE_NOT_FOUND if no broker has this number."""
    member = await _member_with(cluster, broker, timeout_s)
    return await _settings(member, ResourceKind.BROKER, str(broker), timeout_s)


async def alter_broker_settings(
    cluster: ServedCluster,
    broker: int,
    chosen: Mapping[str, SettingValue],
    unset: Sequence[str],
    timeout_s: float,
    *,
    validate_only: bool,
) -> None:
    """Change the broker's settings. Raises RESOURCE_NOT_FOUND if no broker has this number."""
    member = await _member_with(cluster, broker, timeout_s)
    with setting_failures(chosen, unset):
        await member.client.admin.alter_settings(
            ResourceKind.BROKER, str(broker), chosen, unset=unset, validate_only=validate_only, timeout=timeout_s
        )


async def run_query(cluster: ServedCluster, sql: str, rows_max: int, timeout_s: float) -> QueryResult:
    """Run a SQL statement on the catalog. Raises INVALID_REQUEST, with the reason, if it cannot run."""
    if len(cluster.members) > 1:
        text = (
            "each broker of this cluster has its own catalog, and a query reads one; use `millstream sql` on a broker"
        )
        raise invalid("cluster", text)
    try:
        return await cluster.members[0].client.admin.query(sql, rows_max=rows_max, timeout=timeout_s)
    except MillstreamError as error:
        if error.code is not ErrorCode.INVALID_REQUEST:
            raise
        raise TitledError(error.code, error.detail, "sql", title="the SQL statement cannot run") from error


async def _member_with(cluster: ServedCluster, broker: int, timeout_s: float) -> ClusterMember:
    """Return the member that knows this broker. If no member does, return the first one; its response is the error."""
    if len(cluster.members) > 1:
        found = await cluster.all(lambda member: member.client.admin.describe_cluster(timeout=timeout_s))
        for member, described in zip(cluster.members, found, strict=True):
            if any(row.node_id == broker for row in described.brokers):
                return member
    return cluster.members[0]


async def _settings(member: ClusterMember, kind: ResourceKind, name: str, timeout_s: float) -> list[ConfigSetting]:
    return await member.client.admin.describe_settings(kind, name, timeout=timeout_s)
