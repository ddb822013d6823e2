"""Runs the gRPC server: all services of the contract, reflection and health checks."""

import asyncio
from collections.abc import Sequence

import grpc
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_health.v1.health_pb2 import DESCRIPTOR as HEALTH
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_reflection.v1alpha import reflection

from millstream.gateway.budget import Budget
from millstream.gateway.draining import Draining
from millstream.gateway.grpc.call_handling import CallDependencies, CallWrapper, UnknownMethods
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
from millstream.gateway.traffic import Traffic
from millstream.model.authorization import ALLOW_ALL, Authorizer
from millstream.process.addresses import listening

_HEADERS_BYTES = 16 * 1024
_TOLD_WITHIN_S = 1.0
_PING_MS, _PONG_MS, _PINGED_MS = 30_000, 20_000, 10_000
"""Keepalive: interval of pings to an idle client, timeout of its answer, and shortest interval of the client's own
pings.
"""


class GrpcServer:
    """A listening gRPC server."""

    def __init__(
        self,
        server: grpc.aio.Server,
        port: int,
        state: health.HealthServicer,
        draining: Draining,
        wrapper: CallWrapper,
        names: Sequence[str],
    ) -> None:
        """`names` are the services in health checks; the empty name stands for the whole server."""
        self.port = port
        self._names = names
        self._is_serving = True
        self._server = server
        self._state = state
        self._draining = draining
        self._wrapper = wrapper

    async def set_serving(self, is_serving: bool) -> None:
        """Report to health checks whether calls can succeed. Has no effect after the shutdown was announced."""
        if is_serving == self._is_serving:
            return
        self._is_serving = is_serving
        status = HealthCheckResponse.SERVING if is_serving else HealthCheckResponse.NOT_SERVING
        works = (self._state.set(name, status) for name in self._names)
        try:
            async with asyncio.timeout(_TOLD_WITHIN_S):
                await asyncio.gather(*works)
        except TimeoutError:
            pass  # A client that watches does not read.

    @property
    def calls_under_way(self) -> int:
        return self._wrapper.under_way

    async def announce_shutdown(self) -> None:
        """Report NOT_SERVING to health checks. Calls are still accepted."""
        await self._state.enter_graceful_shutdown()

    async def stop(self, grace_s: float = 10.0) -> None:
        """Refuse new calls and wake waiting ones. Other calls get up to `grace_s` to finish."""
        await self.announce_shutdown()
        self._draining.begin()
        await self._server.stop(grace_s)


async def start_grpc(
    clusters: ServedClusters,
    *,
    host: str,
    port: int,
    maker: ClusterCreator | None = None,
    authorizer: Authorizer = ALLOW_ALL,
    draining: Draining | None = None,
    limits: GrpcLimits | None = None,
    budget: Budget | None = None,
    traffic: Traffic | None = None,
) -> GrpcServer:
    """Listen on this address; port 0 selects a free port. Raises ADDRESS_UNAVAILABLE if it cannot be bound."""
    limits, maker, draining = limits or GrpcLimits(), maker or NoSupervisor(), draining or Draining()
    server = grpc.aio.server(options=_options(limits), maximum_concurrent_rpcs=limits.calls)
    budget = budget or Budget()
    traffic = traffic or Traffic("grpc")
    wrapper = CallWrapper(CallDependencies(clusters, authorizer, draining, budget, traffic))
    state = health.HealthServicer()
    names = [""]
    for descriptor, service in services(limits, maker, budget).items():
        server.add_generic_rpc_handlers((wrapper.handler(descriptor, service),))
        names.append(descriptor.full_name)
    for name in names:
        await state.set(name, HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    names_listed = (*names[1:], HEALTH.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names_listed, server)
    server.add_generic_rpc_handlers((UnknownMethods(traffic),))
    bound = await listening("grpc_port", host, port, _bound(server, host, port))
    await server.start()
    return GrpcServer(server, bound, state, draining, wrapper, names)


async def _bound(server: grpc.aio.Server, host: str, port: int) -> int:
    try:
        return server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except RuntimeError:
        raise OSError("the address is in use, or is not an address of this machine") from None


def services(
    limits: GrpcLimits, maker: ClusterCreator, budget: Budget | None = None
) -> dict[ServiceDescriptor, object]:
    """Return the implementation of each service of the contract."""
    reading = ReadingLimits(limits, budget or Budget())
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
