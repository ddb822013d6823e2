"""Runs a gateway's gRPC server in the test's event loop, and parses its failures."""

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
from millstream.gateway.traffic import Traffic
from millstream.model.authorization import ALLOW_ALL, Authorizer
from millstream.model.errors import ErrorCode

HOST = "127.0.0.1"


@dataclass
class Served:
    """A server, and a channel to it."""

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
    authorizer: Authorizer = ALLOW_ALL,
    draining: Draining | None = None,
    limits: GrpcLimits | None = None,
    connecting: ClientFactory | None = None,
    budget: Budget | None = None,
    traffic: Traffic | None = None,
) -> AsyncIterator[Served]:
    """Serve the broker at this address."""
    clusters = ServedClusters({DEFAULT: [bootstrap]}, connecting)
    server = await start_grpc(
        clusters,
        host=HOST,
        port=0,
        authorizer=authorizer,
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
    """A failure as a client sees it: gRPC's status, the name in the error table, and the invalid field."""

    status: grpc.StatusCode
    name: str
    number: int
    field: str | None
    text: str


def failure_of(error: grpc.RpcError) -> Failure:
    """Parse the details of an error; AssertionError if they are not Millstream's."""
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
