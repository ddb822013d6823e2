"""Creates, lists, starts, stops and deletes local clusters over HTTP."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.failures import FieldError
from millstream.gateway.http.operation_table import Example, WebOperation
from millstream.gateway.http.resources.common_parameters import EmptyBody, chosen_name
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations.cluster_create import ClusterCreator, list_created
from millstream.gateway.operations.clusters import CLIENT_ID
from millstream.model.errors import ErrorCode
from millstream.model.rights import Right
from millstream.model.units import quoted, read_duration_ms, read_size_bytes
from millstream.process.client_events import NamedCaller, set_caller
from millstream.process.control_protocol import BROKERS_MAX, BROKERS_UNLESS_SAID, ClusterFacts, NewCluster

ClusterName = Annotated[
    str, Meta(pattern="^[a-z0-9-]{1,64}$", description="Cluster name: lower-case letters, digits and '-', at most 64.")
]

_OTHER_NAMES = {"brokers": "num_brokers", "log_directories": "log_directory", "retention_ms": "retention_policies"}


Brokers = Annotated[int, Meta(ge=1, le=BROKERS_MAX)]
LogDirectories = Annotated[list[str], Meta(max_length=BROKERS_MAX)]
Retention = Annotated[int, Meta(ge=-1)] | str
_DEFAULT_RETENTION = "Default age at which messages expire: milliseconds or a text such as `7d`; -1: never."


class CreateClusterBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A cluster to create on the machine of this gateway's supervisor. Three fields have two names; set one of them."""

    name: ClusterName
    brokers: Annotated[Brokers | None, Meta(description=f"Number of brokers. Default: {BROKERS_UNLESS_SAID}.")] = None
    num_brokers: Annotated[Brokers | None, Meta(description="Another name of `brokers`.")] = None
    log_directories: Annotated[
        LogDirectories | None,
        Meta(description="Data directories inside the cluster's directory: one for all brokers, or one per broker."),
    ] = None
    log_directory: Annotated[
        str | None, Meta(description="One data directory for all brokers, instead of `log_directories`.")
    ] = None
    partitions: Annotated[int, Meta(ge=1, le=10_000, description="Default number of partitions per topic.")] | None = (
        None
    )
    retention_ms: Annotated[Retention | None, Meta(description=_DEFAULT_RETENTION)] = None
    retention_policies: Annotated[Retention | None, Meta(description="Another name of `retention_ms`.")] = None
    retention_bytes: Annotated[
        Annotated[int, Meta(ge=-1)] | str | None,
        Meta(description="Default size limit of a partition: bytes or a text such as `10GiB`; -1: unlimited."),
    ] = None


class LocalBroker(msgspec.Struct, kw_only=True):
    """A broker of a local cluster. `problem` is why it does not run although it should; the supervisor keeps restarting
    it.
    """

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
    """The names of all clusters that this gateway serves, and the clusters that its supervisor created."""

    serves: Sequence[str]
    made: list[LocalCluster]


class NamedCluster(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: ClusterName


async def create_cluster(request: WebRequest) -> LocalCluster:
    """Create a cluster and answer when all of its brokers serve."""
    body: CreateClusterBody = request.body
    names = {name: chosen_name(body, name, other) for name, other in _OTHER_NAMES.items()}
    brokers: int | None = getattr(body, names["brokers"])
    directories: list[str] | str | None = getattr(body, names["log_directories"])
    new = NewCluster(
        body.name,
        BROKERS_UNLESS_SAID if brokers is None else brokers,
        (directories,) if isinstance(directories, str) else tuple(directories or ()),
        body.partitions,
        _parsed(body, names["retention_ms"], read_duration_ms),
        _parsed(body, "retention_bytes", read_size_bytes),
    )
    try:
        return _shown(await _maker(request).create(new))
    except FieldError as error:
        name = names.get(error.field, error.field)
        raise FieldError(error.code, error.detail.replace(error.field, name), name) from None


def _parsed(body: CreateClusterBody, name: str, read: Callable[[str], int]) -> int | None:
    """Parse a duration or a size, which may be a text with a unit. INVALID_CLUSTER, naming the field, otherwise."""
    given: int | str | None = getattr(body, name)
    if not isinstance(given, str):
        return given
    try:
        return read(given)
    except ValueError as error:
        raise FieldError(ErrorCode.INVALID_CLUSTER, f"{name}: {quoted(given)} is {error}", name) from None


def _maker(request: WebRequest) -> ClusterCreator:
    """Return the creator, which passes on the client's address for the supervisor's log."""
    set_caller(NamedCaller(request.principal.host, CLIENT_ID))
    return request.site.maker


async def list_clusters(request: WebRequest) -> LocalClusterList:
    return LocalClusterList(
        serves=request.site.clusters.names, made=[_shown(each) for each in await list_created(request.site.maker)]
    )


async def start_cluster(request: WebRequest) -> LocalCluster:
    return _shown(await _maker(request).start(request.parameters.name))


async def stop_cluster(request: WebRequest) -> LocalCluster:
    return _shown(await _maker(request).stop(request.parameters.name))


async def delete_cluster(request: WebRequest) -> None:
    await _maker(request).delete(request.parameters.name)


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
    "Create a cluster",
    Right.CLUSTER_ADMIN,
    create_cluster,
    parameters=EmptyBody,
    body=CreateClusterBody,
    cluster_field="name",
    answer=LocalCluster,
    status=201,
    group="Clusters",
    errors=(
        ErrorCode.NO_SUPERVISOR,
        ErrorCode.INVALID_CLUSTER,
        ErrorCode.CLUSTER_EXISTS,
        ErrorCode.CLUSTER_NOT_STARTED,
    ),
    examples=(
        Example("Two brokers", "/cluster", {"name": "tests", "brokers": 2}),
        Example(
            "Retention and a data directory",
            "/cluster",
            {"name": "lab", "num_brokers": 1, "log_directory": "logs", "partitions": 2, "retention_policies": 86400000},
        ),
    ),
    bounds=dict.fromkeys(CreateClusterBody.__struct_fields__, ErrorCode.INVALID_CLUSTER),
    details="""\
`millstream serve` starts the brokers now and whenever it is started itself. Their data is in a directory of the cluster
inside the working directory of `millstream serve`. Each topic lives on one of the brokers. Other operations accept the
new name as `cluster`. A gateway without a supervisor answers NO_SUPERVISOR.""",
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
        cluster_field="name",
        answer=LocalCluster,
        group="Clusters",
        errors=_ERRORS,
        examples=(Example("A cluster", "/v1/clusters/tests/stop"),),
    ),
    WebOperation(
        "POST",
        "/v1/clusters/{name}/start",
        "startCluster",
        "Start the brokers of a stopped cluster",
        Right.CLUSTER_ADMIN,
        start_cluster,
        parameters=NamedCluster,
        cluster_field="name",
        answer=LocalCluster,
        group="Clusters",
        errors=(*_ERRORS, ErrorCode.CLUSTER_NOT_STARTED),
        examples=(Example("A cluster", "/v1/clusters/tests/start"),),
    ),
    WebOperation(
        "DELETE",
        "/v1/clusters/{name}",
        "deleteCluster",
        "Delete a cluster and all its data",
        Right.CLUSTER_ADMIN,
        delete_cluster,
        parameters=NamedCluster,
        cluster_field="name",
        status=204,
        group="Clusters",
        errors=_ERRORS,
        examples=(Example("A cluster", "/v1/clusters/tests"),),
    ),
)
