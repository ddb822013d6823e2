"""Describes a cluster over HTTP: versions, brokers, service map, backup map and catalog queries."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from millstream import __version__
from millstream.gateway.http.resources.common_parameters import ClusterParameters, TopicsParameters
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import settings_and_queries
from millstream.sdk.admin.service_map import NO_PORT


class BrokerInfoBody(msgspec.Struct, kw_only=True):
    """A broker's version and clock. `drift_ms` is how far the gateway's clock is ahead of the broker's (negative:
    behind).
    """

    broker: int
    cluster_id: str
    version: str
    client_version_min: str
    client_version_max: str
    time_ms: int
    drift_ms: int
    features: dict[str, str]


class Info(msgspec.Struct, kw_only=True):
    gateway_version: str
    clusters: Sequence[str]
    """Names of the clusters that this gateway serves."""
    brokers: list[BrokerInfoBody]


class ListedBroker(msgspec.Struct, kw_only=True):
    broker: int
    host: str
    port: int
    rack: str | None


class ClusterInfo(msgspec.Struct, kw_only=True):
    cluster: str
    cluster_id: str
    controller: int
    brokers: list[ListedBroker]


class ServiceInfo(msgspec.Struct, kw_only=True):
    kind: str
    broker: int
    host: str
    port: int | None
    detail: str


class LeaderInfo(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    leader: int
    epoch: int


class ServiceMapBody(msgspec.Struct, kw_only=True):
    cluster_id: str
    controller: int
    services: list[ServiceInfo]
    leaders: list[LeaderInfo]


class FollowerInfo(msgspec.Struct, kw_only=True):
    broker: int
    in_sync: bool
    end_offset: int


class BackupInfo(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    leader: int
    end_offset: int
    high_watermark: int
    followers: list[FollowerInfo]


class BackupMapBody(msgspec.Struct, kw_only=True):
    """The followers of each partition. `note` applies to all partitions, for example that replication is off."""

    note: str
    partitions: list[BackupInfo]


class Query(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A SQL query that reads the tables of the catalog."""

    sql: Annotated[str, Meta(min_length=1, max_length=100_000)]
    max_rows: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class QueryRows(msgspec.Struct, kw_only=True):
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    truncated: bool


async def get_info(request: WebRequest) -> Info:
    """Show the versions and clocks of the gateway and its brokers."""
    parameters: ClusterParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    found = await cluster.all(lambda member: member.client.info(timeout=member.timeout_s))
    return Info(
        gateway_version=__version__,
        clusters=request.site.clusters.names,
        brokers=[
            BrokerInfoBody(
                broker=row.broker.node_id,
                cluster_id=row.broker.cluster_id,
                version=row.broker.version,
                client_version_min=row.broker.client_version_min,
                client_version_max=row.broker.client_version_max,
                time_ms=row.broker.server_time_ms,
                drift_ms=row.drift_ms,
                features=dict(row.broker.features),
            )
            for row in found
        ],
    )


async def describe_cluster(request: WebRequest) -> ClusterInfo:
    """List the brokers and name the controller."""
    parameters: ClusterParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    found = await cluster.all(lambda member: member.client.admin.describe_cluster(timeout=member.timeout_s))
    return ClusterInfo(
        cluster=cluster.name,
        cluster_id=found[0].cluster_id,
        controller=found[0].controller_id,
        brokers=[
            ListedBroker(broker=row.node_id, host=row.host, port=row.port, rack=row.rack)
            for each in found
            for row in each.brokers
        ],
    )


async def get_service_map(request: WebRequest) -> ServiceMapBody:
    """Show the addresses of services and the leaders of these topics' partitions, or of all."""
    parameters: TopicsParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    names = await cluster.shares(parameters.names)
    found = await cluster.all(lambda member: member.client.service_map(names[member], timeout=member.timeout_s))
    return ServiceMapBody(
        cluster_id=found[0].cluster_id,
        controller=found[0].controller_id,
        services=[
            ServiceInfo(
                kind=row.kind,
                broker=row.node_id,
                host=row.host,
                port=None if row.port == NO_PORT else row.port,
                detail=row.detail,
            )
            for each in found
            for row in each.services
        ],
        leaders=[
            LeaderInfo(topic=where.topic, partition=where.partition, leader=row.node_id, epoch=row.epoch)
            for each in found
            for where, row in each.leaders.items()
        ],
    )


async def get_backup_map(request: WebRequest) -> BackupMapBody:
    """Show the followers of these topics' partitions, or of all, and their end offsets."""
    parameters: TopicsParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    names = await cluster.shares(parameters.names)
    found = await cluster.all(lambda member: member.client.backup_map(names[member], timeout=member.timeout_s))
    return BackupMapBody(
        note=found[0].note,
        partitions=[
            BackupInfo(
                topic=where.topic,
                partition=where.partition,
                leader=row.leader_id,
                end_offset=row.end_offset,
                high_watermark=row.high_watermark,
                followers=[
                    FollowerInfo(broker=each.node_id, in_sync=each.in_sync, end_offset=each.end_offset)
                    for each in row.followers
                ],
            )
            for answer in found
            for where, row in answer.partitions.items()
        ],
    )


async def run_query(request: WebRequest) -> QueryRows:
    """Run a SQL query on the catalog. Raises INVALID_REQUEST, with the reason, if it cannot run."""
    parameters: ClusterParameters = request.parameters
    query: Query = request.body
    cluster = request.site.clusters.get(parameters.cluster)
    found = await settings_and_queries.run_query(cluster, query.sql, query.max_rows, cluster.timeout_s)
    return QueryRows(columns=found.columns, rows=found.rows, truncated=found.is_truncated)
