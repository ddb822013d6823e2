"""Clusters that are made by a call."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.common_parameters import EmptyBody
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations.cluster_create import made
from millstream.gateway.rights import Right
from millstream.model.errors import ErrorCode
from millstream.process.control_protocol import BROKERS_MAX, BROKERS_UNLESS_SAID, ClusterFacts, NewCluster

ClusterName = Annotated[
    str, Meta(pattern="^[a-z0-9-]{1,64}$", description="Small letters, digits and '-'; at most 64.")
]


class CreateClusterBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A cluster that is to be made, on the machine of the supervisor that this gateway belongs to."""

    name: ClusterName
    brokers: Annotated[int, Meta(ge=1, le=BROKERS_MAX, description="How many brokers it has.")] = BROKERS_UNLESS_SAID
    log_directories: Annotated[
        list[str],
        Meta(
            max_length=BROKERS_MAX,
            description="Where data goes inside the cluster's own directory: one for all, or one each.",
        ),
    ] = msgspec.field(default_factory=list)
    partitions: Annotated[int, Meta(ge=1, le=10_000, description="Of topics that do not say.")] | None = None
    retention_ms: Annotated[int, Meta(ge=-1, description="Age at which messages go; -1 for never.")] | None = None
    retention_bytes: Annotated[int, Meta(ge=-1, description="Size a partition is kept to; -1 for any.")] | None = None


class LocalBroker(msgspec.Struct, kw_only=True):
    """`problem` says why one does not run that should; it is started again and again."""

    broker: int
    host: str
    port: int
    running: bool
    problem: str | None


class LocalCluster(msgspec.Struct, kw_only=True):
    name: str
    stopped: bool
    brokers: list[LocalBroker]
    log_directories: Sequence[str]
    partitions: int | None
    retention_ms: int | None
    retention_bytes: int | None


class LocalClusterList(msgspec.Struct, kw_only=True):
    """Those that this gateway serves, and of them those that its supervisor has made."""

    serves: Sequence[str]
    made: list[LocalCluster]


class NamedCluster(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: ClusterName


async def create_cluster(asked: WebRequest) -> LocalCluster:
    """Make a cluster, and answer when all its brokers serve."""
    new: CreateClusterBody = asked.body
    facts = await asked.site.maker.create(
        NewCluster(
            new.name,
            new.brokers,
            tuple(new.log_directories),
            new.partitions,
            new.retention_ms,
            new.retention_bytes,
        )
    )
    return _shown(facts)


async def list_clusters(asked: WebRequest) -> LocalClusterList:
    return LocalClusterList(
        serves=asked.site.clusters.names, made=[_shown(each) for each in await made(asked.site.maker)]
    )


async def start_cluster(asked: WebRequest) -> LocalCluster:
    return _shown(await asked.site.maker.start(asked.parameters.name))


async def stop_cluster(asked: WebRequest) -> LocalCluster:
    return _shown(await asked.site.maker.stop(asked.parameters.name))


async def delete_cluster(asked: WebRequest) -> None:
    await asked.site.maker.delete(asked.parameters.name)


def _shown(facts: ClusterFacts) -> LocalCluster:
    return LocalCluster(
        name=facts.name,
        stopped=facts.is_stopped,
        brokers=[
            LocalBroker(
                broker=each.node_id,
                host=each.host,
                port=each.port,
                running=each.is_running,
                problem=each.problem or None,
            )
            for each in facts.brokers
        ],
        log_directories=facts.log_directories,
        partitions=facts.partitions,
        retention_ms=facts.retention_ms,
        retention_bytes=facts.retention_bytes,
    )


_ERRORS = (ErrorCode.NO_SUPERVISOR, ErrorCode.UNKNOWN_CLUSTER)

POST_CLUSTER = WebOperation(
    "POST",
    "/cluster",
    "postCluster",
    "Make a cluster",
    Right.CLUSTER_ADMIN,
    create_cluster,
    parameters=EmptyBody,
    body=CreateClusterBody,
    answer=LocalCluster,
    status=201,
    group="Clusters",
    errors=(
        ErrorCode.NO_SUPERVISOR,
        ErrorCode.INVALID_CLUSTER,
        ErrorCode.CLUSTER_EXISTS,
        ErrorCode.CLUSTER_NOT_STARTED,
    ),
    examples=(Example("Two brokers", "/cluster", {"name": "tests", "brokers": 2}),),
    bounds=dict.fromkeys(CreateClusterBody.__struct_fields__, ErrorCode.INVALID_CLUSTER),
    details="""\
`millstream serve` starts the brokers, and starts them again when it is started itself; their data is in a directory of
their own inside its working directory. Each broker serves its own topics: a topic lives on one of them. The name is
then one that `cluster` takes. A gateway that runs alone cannot do it, and says so.""",
)

OPERATIONS = (
    WebOperation(
        "GET",
        "/v1/clusters",
        "listClusters",
        "List clusters",
        Right.CLUSTER_READ,
        list_clusters,
        parameters=EmptyBody,
        answer=LocalClusterList,
        group="Clusters",
        examples=(Example("All", "/v1/clusters"),),
    ),
    WebOperation(
        "POST",
        "/v1/clusters/{name}/stop",
        "stopCluster",
        "Stop the brokers of a cluster",
        Right.CLUSTER_ADMIN,
        stop_cluster,
        parameters=NamedCluster,
        answer=LocalCluster,
        group="Clusters",
        errors=_ERRORS,
        examples=(Example("A cluster", "/v1/clusters/tests/stop"),),
    ),
    WebOperation(
        "POST",
        "/v1/clusters/{name}/start",
        "startCluster",
        "Start the brokers of a cluster again",
        Right.CLUSTER_ADMIN,
        start_cluster,
        parameters=NamedCluster,
        answer=LocalCluster,
        group="Clusters",
        errors=(*_ERRORS, ErrorCode.CLUSTER_NOT_STARTED),
        examples=(Example("A cluster", "/v1/clusters/tests/start"),),
    ),
    WebOperation(
        "DELETE",
        "/v1/clusters/{name}",
        "deleteCluster",
        "Delete a cluster with all its data",
        Right.CLUSTER_ADMIN,
        delete_cluster,
        parameters=NamedCluster,
        status=204,
        group="Clusters",
        errors=_ERRORS,
        examples=(Example("A cluster", "/v1/clusters/tests"),),
    ),
)
