"""A gateway's gRPC server in the test's own event loop, and how its failures are read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from millstream.gateway.budget import Budget
from millstream.gateway.draining import Draining
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.grpc.server import GrpcServer, start_grpc
from millstream.gateway.grpc.statuses import DETAILS_KEY
from millstream.gateway.grpc.v1.cluster_pb2_grpc import ClusterServiceStub
from millstream.gateway.grpc.v1.consumers_pb2_grpc import ConsumerServiceStub
from millstream.gateway.grpc.v1.groups_pb2_grpc import GroupServiceStub
from millstream.gateway.grpc.v1.iterators_pb2_grpc import IteratorServiceStub
from millstream.gateway.grpc.v1.messages_pb2_grpc import MessageServiceStub
from millstream.gateway.grpc.v1.topics_pb2_grpc import TopicServiceStub
from millstream.gateway.operations.clusters import DEFAULT, ClientFactory, ServedClusters
from millstream.gateway.rights import ANYBODY, RightsGuard
from millstream.gateway.traffic import Traffic
from millstream.model.errors import ErrorCode

HOST = "127.0.0.1"


@dataclass
class Served:
    """A server with a channel to it."""

    server: GrpcServer
    clusters: ServedClusters
    channel: grpc.aio.Channel

    def __post_init__(self) -> None:
        self.topics = TopicServiceStub(self.channel)
        self.messages = MessageServiceStub(self.channel)
        self.groups = GroupServiceStub(self.channel)
        self.cluster = ClusterServiceStub(self.channel)
        self.consumers = ConsumerServiceStub(self.channel)
        self.iterators = IteratorServiceStub(self.channel)


@asynccontextmanager
async def grpc_gateway(
    bootstrap: str,
    *,
    guard: RightsGuard = ANYBODY,
    draining: Draining | None = None,
    limits: GrpcLimits | None = None,
    connecting: ClientFactory | None = None,
    budget: Budget | None = None,
    traffic: Traffic | None = None,
) -> AsyncIterator[Served]:
    """One that serves the broker at this address."""
    clusters = ServedClusters({DEFAULT: [bootstrap]}, connecting)
    server = await start_grpc(
        clusters,
        host=HOST,
        port=0,
        guard=guard,
        draining=draining,
        limits=limits,
        budget=budget,
        traffic=traffic,
    )
    try:
        async with grpc.aio.insecure_channel(f"{HOST}:{server.port}") as channel:
            yield Served(server, clusters, channel)
    finally:
        await server.stop(0)
        await clusters.close()


@dataclass
class Failure:
    """A failure as a client sees it: gRPC's status, the name in the one table, the field to blame."""

    status: grpc.StatusCode
    name: str
    number: int
    field: str | None
    text: str


def failure_of(error: grpc.RpcError) -> Failure:
    """What the details say; AssertionError where they are not ours."""
    assert isinstance(error, grpc.aio.AioRpcError | grpc.Call)
    trailers = dict(error.trailing_metadata() or ())
    told = Status.FromString(trailers[DETAILS_KEY])
    info, bad = ErrorInfo(), BadRequest()
    fields = []
    for detail in told.details:
        if detail.Unpack(bad):
            fields += [violation.field for violation in bad.field_violations]
        else:
            assert detail.Unpack(info)
    assert info.domain == "millstream"
    assert told.code == error.code().value[0]
    number = int(info.metadata["number"])
    assert ErrorCode[info.reason].number == number
    return Failure(error.code(), info.reason, number, fields[0] if fields else None, error.details() or "")
