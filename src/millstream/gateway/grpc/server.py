"""The gRPC server of a gateway: all services of the contract, reflection and health."""

import grpc
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_health.v1.health_pb2 import DESCRIPTOR as HEALTH
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_reflection.v1alpha import reflection

from millstream.gateway.budget import Budget
from millstream.gateway.draining import Draining
from millstream.gateway.grpc.call_handling import CallDependencies, CallWrapper
from millstream.gateway.grpc.cluster_service import ClusterService
from millstream.gateway.grpc.consumer_service import ConsumerService
from millstream.gateway.grpc.group_service import GroupService
from millstream.gateway.grpc.iterator_service import IteratorService
from millstream.gateway.grpc.limits import GrpcLimits, ReadingLimits
from millstream.gateway.grpc.message_service import MessageService
from millstream.gateway.grpc.topic_service import TopicService
from millstream.gateway.grpc.v1 import cluster_pb2, consumers_pb2, groups_pb2, iterators_pb2, messages_pb2, topics_pb2
from millstream.gateway.operations.cluster_create import ClusterCreator, NoSupervisor
from millstream.gateway.operations.clusters import ServedClusters
from millstream.gateway.rights import ANYBODY, RightsGuard
from millstream.gateway.traffic import Traffic
from millstream.process.addresses import listening

_HEADERS_BYTES = 16 * 1024
_PING_MS, _PONG_MS, _PINGED_MS = 30_000, 20_000, 10_000
"""How often a silent client is asked whether it is there, how long it may take to say so, and how often it may ask."""


class GrpcServer:
    """A server that listens."""

    def __init__(
        self,
        server: grpc.aio.Server,
        port: int,
        state: health.HealthServicer,
        draining: Draining,
        answering: CallWrapper,
    ) -> None:
        self.port = port
        self._server = server
        self._state = state
        self._draining = draining
        self._answering = answering

    @property
    def calls_under_way(self) -> int:
        return self._answering.under_way

    async def say_it_ends(self) -> None:
        """Tell those who ask for health that this server is on its way out; calls are taken still."""
        await self._state.enter_graceful_shutdown()

    async def stop(self, grace_s: float = 10.0) -> None:
        """Take no more calls, and wake those that wait; those that work may take so long to finish."""
        await self.say_it_ends()
        self._draining.begin()
        await self._server.stop(grace_s)


async def start_grpc(
    clusters: ServedClusters,
    *,
    host: str,
    port: int,
    maker: ClusterCreator | None = None,
    guard: RightsGuard = ANYBODY,
    draining: Draining | None = None,
    limits: GrpcLimits | None = None,
    budget: Budget | None = None,
    traffic: Traffic | None = None,
) -> GrpcServer:
    """Listen on this address, port 0 for any that is free; ADDRESS_UNAVAILABLE when it cannot be had."""
    limits, maker, draining = limits or GrpcLimits(), maker or NoSupervisor(), draining or Draining()
    server = grpc.aio.server(options=_options(limits), maximum_concurrent_rpcs=limits.calls)
    answering = CallWrapper(CallDependencies(clusters, guard, draining, budget or Budget(), traffic or Traffic("grpc")))
    state = health.HealthServicer()
    names = [""]
    for descriptor, service in services(limits, maker).items():
        server.add_generic_rpc_handlers((answering.handler(descriptor, service),))
        names.append(descriptor.full_name)
    for name in names:
        await state.set(name, HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    told = (*names[1:], HEALTH.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(told, server)
    bound = await listening("grpc_port", host, port, _bound(server, host, port))
    await server.start()
    return GrpcServer(server, bound, state, draining, answering)


async def _bound(server: grpc.aio.Server, host: str, port: int) -> int:
    try:
        return server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except RuntimeError:
        raise OSError("it is in use, or no address of this machine") from None


def services(limits: GrpcLimits, maker: ClusterCreator) -> dict[ServiceDescriptor, object]:
    """Who serves what of the contract."""
    reading = ReadingLimits(limits)
    return {
        _only(topics_pb2.DESCRIPTOR): TopicService(),
        _only(messages_pb2.DESCRIPTOR): MessageService(limits, reading),
        _only(groups_pb2.DESCRIPTOR): GroupService(),
        _only(consumers_pb2.DESCRIPTOR): ConsumerService(reading),
        _only(iterators_pb2.DESCRIPTOR): IteratorService(reading),
        _only(cluster_pb2.DESCRIPTOR): ClusterService(maker),
    }


def _only(file: FileDescriptor) -> ServiceDescriptor:
    (found,) = file.services_by_name.values()
    return found


def _options(limits: GrpcLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", limits.calls_per_connection),
        ("grpc.max_metadata_size", _HEADERS_BYTES),
        ("grpc.keepalive_time_ms", _PING_MS),
        ("grpc.keepalive_timeout_ms", _PONG_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", _PINGED_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.so_reuseport", 0),
    ]
