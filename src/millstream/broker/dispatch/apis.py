"""Builds the dispatch table with every API of this broker. Each handler receives only what it needs.

Produce is served from version 3, but advertised from version 0: librdkafka up to 2.11 silently stops compressing if
version 0 is not advertised.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from millstream.broker.config_entries import ConfigEntry
from millstream.broker.dispatch.admin_apis import admin_rows
from millstream.broker.dispatch.capabilities import ClusterNode
from millstream.broker.dispatch.dispatch_table import ApiRow, DispatchTable
from millstream.broker.dispatch.group_apis import group_rows
from millstream.broker.dispatch.iterator_apis import iterator_rows
from millstream.broker.dispatch.open_changes import CHANGED_PARTITIONS, DELETED_RECORDS, TOPICS
from millstream.broker.dispatch.push_apis import push_rows
from millstream.broker.dispatch.request_targets import partitions_in
from millstream.broker.fetch_sessions import FetchSessions
from millstream.broker.group_requests import GroupCoordination
from millstream.broker.handlers.api_versions import ApiVersionsHandler, refusal
from millstream.broker.handlers.backup_map import BackupMapHandler
from millstream.broker.handlers.fetch import FetchHandler
from millstream.broker.handlers.info import InfoHandler
from millstream.broker.handlers.init_producer_id import InitProducerIdHandler
from millstream.broker.handlers.list_offsets import ListOffsetsHandler
from millstream.broker.handlers.metadata import MetadataHandler
from millstream.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from millstream.broker.handlers.produce import ProduceHandler
from millstream.broker.handlers.puts import PutsHandler
from millstream.broker.handlers.query import Queries, QueryHandler
from millstream.broker.handlers.role import RoleHandler
from millstream.broker.handlers.service_map import ServiceMapHandler
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.signed_iterators import IteratorServing
from millstream.catalog.producer_ids import ProducerIds
from millstream.groups.group_configs import GroupConfigs
from millstream.model.authorization import Authorizer
from millstream.model.errors import ErrorCode
from millstream.model.limits import REQUEST_BYTES_MAX
from millstream.model.rights import Right
from millstream.model.roles import Role
from millstream.model.services import Service
from millstream.partition.appender import Appender
from millstream.partition.pending_appends import AppendDeadlines
from millstream.partition.served.partitions import Partitions
from millstream.seams.clock import Clock
from millstream.seams.entropy import Entropy

MANY_PARTITIONS_BYTES_MAX = 2 * 1024 * 1024
"""Maximum size of a request that lists partitions. It fits the largest number of partitions of one request."""


class ApiDependencies(Struct, frozen=True):
    """The components and settings that the handlers need."""

    partitions: Partitions
    groups: GroupCoordination
    queries: Queries
    producer_ids: ProducerIds
    cluster: ClusterNode
    clock: Clock
    entropy: Entropy
    memory: MemoryLimits
    version: str
    iterators: IteratorServing
    group_configs: GroupConfigs
    authorizer: Authorizer
    auto_create: bool = True
    default_partitions: int = 1
    features: Mapping[str, str] = field(default_factory=dict)
    at_start: Sequence[ConfigEntry] = ()
    """The settings of this broker that are not defaults of topics."""
    services: Sequence[Service] = ()
    """The services besides the broker's own listener. The sequence may grow."""
    machine: str = ""
    """The identity of this machine. A reader that names the same machine receives file positions instead of data."""


def build_table(served: ApiDependencies) -> DispatchTable:
    """Build the dispatch table of a broker."""
    partitions, cluster = served.partitions, served.cluster
    api_versions = ApiVersionsHandler()
    auto_create = partitions if served.auto_create else None
    metadata = MetadataHandler(cluster, auto_create, served.default_partitions)
    appender, deadlines = Appender(), AppendDeadlines()
    sessions = FetchSessions(served.clock, served.entropy)
    fetch = FetchHandler(partitions, sessions, served.memory, served.machine)
    info = InfoHandler(cluster, served.clock, served.version, served.features)
    rows = [
        ApiRow(
            0, "Produce", 3, 13, Right.MESSAGES_WRITE, ProduceHandler(partitions, appender, deadlines),
            bytes_max=REQUEST_BYTES_MAX, advertised_first=0, role=Role.PRODUCER,
            waits_for=DELETED_RECORDS | TOPICS,
        ),
        ApiRow(
            1, "Fetch", 4, 18, Right.MESSAGES_READ, fetch,
            bytes_max=MANY_PARTITIONS_BYTES_MAX, role=Role.CONSUMER,
            waits_for=CHANGED_PARTITIONS, targets=fetch.targets,
        ),
        ApiRow(
            2, "ListOffsets", 1, 11, Right.TOPICS_READ, ListOffsetsHandler(partitions),
            bytes_max=MANY_PARTITIONS_BYTES_MAX,
            waits_for=CHANGED_PARTITIONS, targets=partitions_in("ListOffsets"),
        ),
        ApiRow(3, "Metadata", 0, 13, Right.TOPICS_READ, metadata, by_resource=True),
        ApiRow(18, "ApiVersions", 0, 4, Right.NOTHING, api_versions, refusal=refusal(18, first=0, last=4)),
        ApiRow(
            22, "InitProducerId", 0, 6, Right.MESSAGES_WRITE,
            InitProducerIdHandler(served.producer_ids),
            role=Role.PRODUCER, refused_with=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        ApiRow(
            23, "OffsetForLeaderEpoch", 2, 4, Right.TOPICS_READ, OffsetForLeaderEpochHandler(partitions),
            bytes_max=MANY_PARTITIONS_BYTES_MAX,
            waits_for=CHANGED_PARTITIONS,
            targets=partitions_in("OffsetForLeaderEpoch", topic="topic", number="partition"),
        ),
        ApiRow(1000, "Info", 0, 0, Right.NOTHING, info),
        ApiRow(1001, "Query", 0, 0, Right.CLUSTER_READ, QueryHandler(served.queries)),
        ApiRow(1002, "Role", 0, 0, Right.NOTHING, RoleHandler()),
        ApiRow(
            1003, "Puts", 0, 0, Right.MESSAGES_WRITE, PutsHandler(partitions, appender, deadlines),
            bytes_max=REQUEST_BYTES_MAX, role=Role.PRODUCER, waits_for=DELETED_RECORDS | TOPICS,
        ),
        ApiRow(1004, "ServiceMap", 0, 0, Right.CLUSTER_READ, ServiceMapHandler(cluster, served.services)),
        ApiRow(1005, "BackupMap", 0, 0, Right.CLUSTER_READ, BackupMapHandler(partitions)),
        *push_rows(partitions, served.groups, served.memory),
        *group_rows(served.groups, cluster),
        *iterator_rows(served.groups, partitions, served.iterators, cluster, served.memory),
        *admin_rows(
            partitions, cluster, served.clock,
            default_partitions=served.default_partitions,
            at_start=served.at_start,
            group_configs=served.group_configs,
        ),
    ]  # fmt: skip
    api_versions.announce(rows)
    return DispatchTable(rows, served.authorizer, served.clock.monotonic_s)
