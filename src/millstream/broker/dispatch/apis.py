"""Every API this broker serves: the rows of the dispatch table, each handler given what it needs and no more.

What the numbers hide: Produce is served from version 3, but advertised from 0, because librdkafka up to 2.11 stops
compressing without a word where it is not.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from millstream.broker.append_requests import AppendRequest
from millstream.broker.config_entries import ConfigEntry
from millstream.broker.dispatch.admin_apis import admin_rows
from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.dispatch.dispatch_table import ApiRight, ApiRow, DispatchTable
from millstream.broker.dispatch.group_apis import group_rows
from millstream.broker.dispatch.iterator_apis import iterator_rows
from millstream.broker.dispatch.push_apis import push_rows
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
from millstream.groups.settings import GroupSettings
from millstream.model.limits import REQUEST_BYTES_MAX
from millstream.model.roles import Role
from millstream.model.services import Service
from millstream.partition.served.partitions import Partitions
from millstream.seams.clock import Clock
from millstream.seams.entropy import Entropy

MANY_PARTITIONS_BYTES_MAX = 2 * 1024 * 1024
"""Largest request that may name as many partitions as one request can."""


class ApiDependencies(Struct, frozen=True):
    """What there is to be served, and how."""

    partitions: Partitions
    groups: GroupCoordination
    queries: Queries
    producer_ids: ProducerIds
    identity: BrokerIdentity
    clock: Clock
    entropy: Entropy
    memory: MemoryLimits
    version: str
    iterators: IteratorServing
    auto_create: bool = True
    default_partitions: int = 1
    features: Mapping[str, str] = field(default_factory=dict)
    at_start: Sequence[ConfigEntry] = ()
    """What this broker was told, as far as it is not the default of topics."""
    group_settings: GroupSettings = field(default_factory=GroupSettings)
    services: Sequence[Service] = ()
    """What runs besides the broker's own listener; may grow."""
    machine: str = ""
    """Readers who name the same are told where files lie."""


def build_table(served: ApiDependencies) -> DispatchTable:
    """The dispatch table of a broker."""
    partitions, identity = served.partitions, served.identity
    api_versions = ApiVersionsHandler()
    auto_create = partitions if served.auto_create else None
    metadata = MetadataHandler(partitions, identity, auto_create, served.default_partitions)
    appending = AppendRequest()
    sessions = FetchSessions(served.clock, served.entropy)
    info = InfoHandler(identity, served.clock, served.version, served.features)
    rows = [
        ApiRow(
            0, "Produce", 3, 13, ApiRight.WRITE, ProduceHandler(partitions, appending),
            bytes_max=REQUEST_BYTES_MAX, advertised_first=0, role=Role.PRODUCER,
        ),
        ApiRow(
            1, "Fetch", 4, 18, ApiRight.READ, FetchHandler(partitions, sessions, served.memory, served.machine),
            bytes_max=MANY_PARTITIONS_BYTES_MAX, role=Role.CONSUMER,
        ),
        ApiRow(
            2, "ListOffsets", 1, 11, ApiRight.DESCRIBE, ListOffsetsHandler(partitions),
            bytes_max=MANY_PARTITIONS_BYTES_MAX,
        ),
        ApiRow(3, "Metadata", 0, 13, ApiRight.DESCRIBE, metadata),
        ApiRow(18, "ApiVersions", 0, 4, ApiRight.NONE, api_versions, refusal=refusal(18, 0, 4)),
        ApiRow(
            22, "InitProducerId", 0, 6, ApiRight.WRITE, InitProducerIdHandler(served.producer_ids), role=Role.PRODUCER,
        ),
        ApiRow(
            23, "OffsetForLeaderEpoch", 2, 4, ApiRight.DESCRIBE, OffsetForLeaderEpochHandler(partitions),
            bytes_max=MANY_PARTITIONS_BYTES_MAX,
        ),
        ApiRow(1000, "Info", 0, 0, ApiRight.NONE, info),
        ApiRow(1001, "Query", 0, 0, ApiRight.DESCRIBE, QueryHandler(served.queries)),
        ApiRow(1002, "Role", 0, 0, ApiRight.NONE, RoleHandler()),
        ApiRow(
            1003, "Puts", 0, 0, ApiRight.WRITE, PutsHandler(partitions, appending),
            bytes_max=REQUEST_BYTES_MAX, role=Role.PRODUCER,
        ),
        ApiRow(1004, "ServiceMap", 0, 0, ApiRight.DESCRIBE, ServiceMapHandler(partitions, identity, served.services)),
        ApiRow(1005, "BackupMap", 0, 0, ApiRight.DESCRIBE, BackupMapHandler(partitions)),
        *push_rows(partitions, served.groups, served.memory),
        *group_rows(served.groups, partitions, identity),
        *iterator_rows(served.groups, partitions, served.iterators, identity, served.memory),
        *admin_rows(
            partitions, identity, served.clock,
            default_partitions=served.default_partitions,
            at_start=served.at_start,
            group_settings=served.group_settings,
        ),
    ]  # fmt: skip
    api_versions.announce(rows)
    return DispatchTable(rows)
