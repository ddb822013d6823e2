"""Implements ClusterService: clusters, versions, service map, backup map, catalog queries and broker settings."""

import asyncio

from millstream.gateway.grpc.call_handling import Call, needs
from millstream.gateway.grpc.message_conversion import to_setting
from millstream.gateway.grpc.v1 import cluster_pb2 as pb
from millstream.gateway.operations import settings_and_queries
from millstream.gateway.operations.cluster_create import ClusterCreator, list_created
from millstream.gateway.operations.clusters import CLIENT_ID
from millstream.model.rights import Right
from millstream.process.client_events import NamedCaller, set_caller
from millstream.process.control_protocol import BROKERS_UNLESS_SAID, ClusterFacts, NewCluster
from millstream.sdk.admin.admin import ROWS_MAX


class ClusterService:
    def __init__(self, maker: ClusterCreator) -> None:
        self._maker = maker

    @needs(Right.CLUSTER_READ)
    async def list_clusters(self, request: pb.ListClustersRequest, call: Call) -> pb.ListClustersResponse:
        return pb.ListClustersResponse(clusters=call.clusters.names, made=map(_made, await list_created(self._maker)))

    @needs(Right.CLUSTER_READ)
    async def get_info(self, request: pb.GetInfoRequest, call: Call) -> pb.GetInfoResponse:
        cluster = call.cluster(request.cluster)
        timeout_s = call.timeout_s(cluster)
        first = cluster.members[0].client
        (info, _), described = await asyncio.gather(
            first.info(timeout=timeout_s),
            cluster.all(lambda member: member.client.admin.describe_cluster(timeout=timeout_s)),
        )
        return pb.GetInfoResponse(
            cluster_id=info.cluster_id,
            controller_id=described[0].controller_id,
            brokers=[
                pb.BrokerAddress(node_id=row.node_id, host=row.host, port=row.port)
                for each in described
                for row in each.brokers
            ],
            node_id=info.node_id,
            version=info.version,
            client_version_min=info.client_version_min,
            client_version_max=info.client_version_max,
            server_time_ms=info.server_time_ms,
            features=dict(info.features),
        )

    @needs(Right.CLUSTER_READ)
    async def get_service_map(self, request: pb.GetServiceMapRequest, call: Call) -> pb.GetServiceMapResponse:
        cluster = call.cluster(request.cluster)
        timeout_s = call.timeout_s(cluster)
        shares = await cluster.shares(list(request.topics) or None)
        maps = await cluster.all(lambda member: member.client.service_map(shares[member], timeout=timeout_s))
        response = pb.GetServiceMapResponse(cluster_id=maps[0].cluster_id, controller_id=maps[0].controller_id)
        for found in maps:
            for service in found.services:
                response.services.add(**service._asdict())
            for where, leader in sorted(found.leaders.items()):
                response.leaders.add(
                    topic=where.topic, partition=where.partition, leader=leader.node_id, leader_epoch=leader.epoch
                )
        return response

    @needs(Right.CLUSTER_READ)
    async def get_backup_map(self, request: pb.GetBackupMapRequest, call: Call) -> pb.GetBackupMapResponse:
        cluster = call.cluster(request.cluster)
        timeout_s = call.timeout_s(cluster)
        shares = await cluster.shares(list(request.topics) or None)
        maps = await cluster.all(lambda member: member.client.backup_map(shares[member], timeout=timeout_s))
        response = pb.GetBackupMapResponse(note=maps[0].note)
        for where, row in sorted((where, row) for found in maps for where, row in found.partitions.items()):
            response.partitions.add(
                topic=where.topic,
                partition=where.partition,
                leader=row.leader_id,
                end_offset=row.end_offset,
                high_watermark=row.high_watermark,
                followers=[pb.Follower(**follower._asdict()) for follower in row.followers],
            )
        return response

    def _creator(self, call: Call) -> ClusterCreator:
        """Return the creator, which passes on the client's address for the supervisor's log."""
        set_caller(NamedCaller(call.client_host, CLIENT_ID))
        return self._maker

    @needs(Right.CLUSTER_ADMIN, cluster_field="name")
    async def create_cluster(self, request: pb.CreateClusterRequest, call: Call) -> pb.CreateClusterResponse:
        facts = await self._creator(call).create(
            NewCluster(
                request.name,
                request.brokers or BROKERS_UNLESS_SAID,
                tuple(request.log_directories),
                request.partitions or None,
                request.retention_ms or None,
                request.retention_bytes or None,
            )
        )
        return pb.CreateClusterResponse(name=facts.name, brokers=_brokers(facts))

    @needs(Right.CLUSTER_ADMIN, cluster_field="name")
    async def stop_cluster(self, request: pb.StopClusterRequest, call: Call) -> pb.StopClusterResponse:
        found = await self._creator(call).stop(request.name)
        return pb.StopClusterResponse(name=found.name, brokers=_brokers(found), stopped=found.is_stopped)

    @needs(Right.CLUSTER_ADMIN, cluster_field="name")
    async def start_cluster(self, request: pb.StartClusterRequest, call: Call) -> pb.StartClusterResponse:
        found = await self._creator(call).start(request.name)
        return pb.StartClusterResponse(name=found.name, brokers=_brokers(found), stopped=found.is_stopped)

    @needs(Right.CLUSTER_ADMIN, cluster_field="name")
    async def delete_cluster(self, request: pb.DeleteClusterRequest, call: Call) -> pb.DeleteClusterResponse:
        await self._creator(call).delete(request.name)
        return pb.DeleteClusterResponse()

    @needs(Right.CLUSTER_READ)
    async def run_query(self, request: pb.RunQueryRequest, call: Call) -> pb.RunQueryResponse:
        cluster = call.cluster(request.cluster)
        found = await settings_and_queries.run_query(
            cluster, request.sql, request.max_rows or ROWS_MAX, call.timeout_s(cluster)
        )
        rows = [pb.Row(cells=map(_cell, row)) for row in found.rows]
        return pb.RunQueryResponse(columns=found.columns, rows=rows, truncated=found.is_truncated)

    @needs(Right.CLUSTER_READ)
    async def get_broker_settings(
        self, request: pb.GetBrokerSettingsRequest, call: Call
    ) -> pb.GetBrokerSettingsResponse:
        cluster = call.cluster(request.cluster)
        rows = await settings_and_queries.broker_settings(cluster, request.broker, call.timeout_s(cluster))
        return pb.GetBrokerSettingsResponse(settings=map(to_setting, rows))

    @needs(Right.CLUSTER_ADMIN)
    async def alter_broker_settings(
        self, request: pb.AlterBrokerSettingsRequest, call: Call
    ) -> pb.AlterBrokerSettingsResponse:
        cluster = call.cluster(request.cluster)
        await settings_and_queries.alter_broker_settings(
            cluster,
            request.broker,
            dict(request.set),
            list(request.unset),
            call.timeout_s(cluster),
            validate_only=request.validate_only,
        )
        return pb.AlterBrokerSettingsResponse()


def _made(cluster: ClusterFacts) -> pb.LocalCluster:
    brokers = [
        pb.LocalBroker(node_id=row.node_id, host=row.host, port=row.port, running=row.is_running, problem=row.problem)
        for row in cluster.brokers
    ]
    return pb.LocalCluster(name=cluster.name, stopped=cluster.is_stopped, brokers=brokers)


def _brokers(cluster: ClusterFacts) -> list[pb.BrokerAddress]:
    return [pb.BrokerAddress(node_id=row.node_id, host=row.host, port=row.port) for row in cluster.brokers]


def _cell(value: object) -> pb.Cell:
    """Convert a SQLite value to a cell."""
    if isinstance(value, int):
        return pb.Cell(integer=value)
    if isinstance(value, float):
        return pb.Cell(real=value)
    return pb.Cell() if value is None else pb.Cell(text=str(value))
