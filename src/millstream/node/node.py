"""Assembles one broker from its parts. Clock, disk, network and workers are injected, so a simulation runs this code.

Start order: the store locks the data directories and recovers the logs, the catalog lists the topics, the partitions
rebuild their derived state, the groups begin to load their state, and the sockets open. The node stops in reverse
order. Every part that was opened is closed, even if a later step of the start fails.
"""

import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack

from millstream import __version__
from millstream.broker.dispatch.apis import ApiDependencies, build_table
from millstream.broker.net.listener import Listener
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.signed_iterators import SECRET, IteratorServing, IteratorSigner
from millstream.catalog.catalog import Catalog
from millstream.catalog.cluster_metadata import ClusterMetadata
from millstream.catalog.producer_ids import ProducerIds
from millstream.groups.group_configs import GroupConfigs
from millstream.groups.iterators.served_iterators import ServedIterators
from millstream.groups.runtime.coordinator import GroupCoordinator
from millstream.groups.settings import GroupSettings
from millstream.model.authorization import ALLOW_ALL, Authorizer
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId
from millstream.model.services import NO_PORT, Service
from millstream.node.broker_configs import shown_settings
from millstream.node.data_findings import data_findings
from millstream.node.health import BrokerHealth, ChildStates, FindingSource, no_children, no_findings
from millstream.node.metric_sources import child_metrics, metric_sources
from millstream.node.operator_http import OperatorPort
from millstream.node.operator_pages import Operator
from millstream.node.partition_census import take_census
from millstream.node.settings import BrokerSettings
from millstream.partition.derived_state import ProducerLimits
from millstream.partition.message_ids.limits import IdLimits
from millstream.partition.served.partitions import Partitions
from millstream.process.addresses import listening
from millstream.process.findings import Finding, OpenPort
from millstream.process.metrics import Metric, Source
from millstream.records.compiled import COMPILED
from millstream.seams.clock import Clock
from millstream.seams.disk import Disk
from millstream.seams.entropy import Entropy
from millstream.seams.network import Network
from millstream.seams.workers import Workers
from millstream.storage.cleaning.cleaner import CleanerLimits
from millstream.storage.disk_reserve import DiskLimits
from millstream.storage.store import OPEN_FILES_MAX, FlushPolicy, LogStore
from millstream.topics.setting_table import TABLE
from millstream.wire.schema import read_schemas

log = logging.getLogger(__name__)

GRACE_S = 0.4
"""Longest time that requests in flight may take when the broker stops."""

OPERATOR_OFF = -1


def no_metrics() -> Iterable[Metric]:
    return ()


class Node:
    """A broker that can be started once and stopped once."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock,
        disk: Disk,
        network: Network,
        workers: Workers,
        flush_workers: Workers,
        catalog: Catalog,
        entropy: Entropy,
        process_metrics: Source = no_metrics,
        authorizer: Authorizer = ALLOW_ALL,
        open_files_max: int = OPEN_FILES_MAX,
        descriptors_max: int = 0,
    ) -> None:
        """`open_files_max` limits the open log files. `descriptors_max` is the limit of open files of the process."""
        self.settings = settings
        self.kafka_port = settings.kafka_port
        self.operator_port = settings.operator_port
        self._clock = clock
        self._disk = disk
        self._network = network
        self._workers = workers
        self._flush_workers = flush_workers
        self._catalog = catalog
        self._entropy = entropy
        self._process_metrics = process_metrics
        self._authorizer = authorizer
        self._open_files_max = open_files_max
        self._descriptors_max = descriptors_max
        self._open = AsyncExitStack()
        self._services: list[Service] = []
        self._operator: Operator | None = None
        self._partitions: Partitions | None = None
        self._health: BrokerHealth | None = None
        self._findings_of_children: FindingSource = no_findings
        self._states_of_children: ChildStates = no_children

    async def start(self) -> None:
        """Recovers the data and serves clients. After an error, the caller must still call `stop`.

        Raises DATA_DIRECTORY_IN_USE, DATA_DIRECTORY_MISSING or CATALOG_REFUSED if the data cannot be served,
        ADDRESS_UNAVAILABLE if a port is taken, and OSError if the disk fails.
        """
        settings = self.settings
        partitions = self._partitions = await self._open_partitions()
        iterators = IteratorServing(
            IteratorSigner(await self._catalog.secret(SECRET)),
            ServedIterators(self._clock, settings.iterator_in_flight_max_ms),
        )
        configs = GroupConfigs(group_settings(settings), self._catalog)
        await configs.load()
        groups = await self._open_groups(partitions, configs, iterators.served)
        self.announce("catalog", [NO_PORT], f"{self._catalog.kind}, inside the broker")
        memory = MemoryLimits(
            incoming_bytes_max=settings.request_memory_bytes, outgoing_bytes_max=settings.response_memory_bytes
        )
        table = build_table(
            ApiDependencies(
                partitions,
                groups,
                self._catalog,
                ProducerIds(self._catalog, BrokerId(settings.node_id)),
                partitions.cluster,
                self._clock,
                self._entropy,
                memory,
                __version__,
                iterators,
                configs,
                self._authorizer,
                auto_create=settings.auto_create,
                default_partitions=settings.default_partitions,
                at_start=tuple(shown_settings(settings, configs.broker)),
                services=self._services,
                machine=self._network.machine,
                features={"codec": "compiled" if COMPILED else "plain", "flush": settings.flush},
            )
        )
        read_schemas(row.api for row in table.rows.values())
        limits = {"descriptors_max": self._descriptors_max, "log_files_max": self._open_files_max}
        listener = Listener(table, self._clock, memory, self._workers, **limits)
        reserves = partitions.store.reserves
        findings = [listener.shared.reconnects.findings, *data_findings(partitions)]
        health = self._health = BrokerHealth(reserves, self._children_findings, findings)
        sources = [*metric_sources(partitions, groups, listener), self._child_metrics, self._process_metrics]
        self._operator = Operator(sources, partitions, self._clock, health, reserves)
        await self._open_operator(self._operator)
        self._open.push_async_callback(listener.stop, GRACE_S)
        opened = await listening(
            "kafka_port",
            settings.host,
            settings.kafka_port,
            listener.start(self._network, settings.host, settings.kafka_port),
        )
        self.kafka_port = opened.port
        self._report_exposure(health)
        await self._register(partitions.cluster)
        self._operator.is_ready = True
        log.info("broker ready", extra={"host": settings.host, "port": self.kafka_port, "partitions": partitions.count})

    def _report_exposure(self, health: BrokerHealth) -> None:
        host = self.settings.host
        ports = {"the Kafka port": self.kafka_port, "the operator port": self.operator_port}
        health.opened([OpenPort(name, host, port) for name, port in ports.items() if port != OPERATOR_OFF])

    async def _register(self, cluster: ClusterMetadata) -> None:
        """Publishes the broker's host and port to clients, and stores them in the catalog for the next start."""
        endpoint = self._endpoint()
        cluster.publish(cluster.image.broker_registered(endpoint))
        await self._catalog.register_broker(endpoint.node_id, endpoint.host, endpoint.port)

    def _endpoint(self) -> BrokerEndpoint:
        settings = self.settings
        return BrokerEndpoint(BrokerId(settings.node_id), settings.advertised_host or settings.host, self.kafka_port)

    async def upkeep(self) -> None:
        """Runs one round of the periodic maintenance now: retention, saving of state, and retries."""
        if self._partitions is not None:
            await self._partitions.upkeep()

    async def stop(self) -> None:
        """Answers requests in flight, flushes, writes checkpoints, and releases all resources."""
        if self._operator:
            self._operator.is_ready = False
        await self._open.aclose()

    async def _open_partitions(self) -> Partitions:
        settings = self.settings
        store = await LogStore.open(
            settings.data,
            disk=self._disk,
            clock=self._clock,
            workers=self._workers,
            flush_workers=self._flush_workers,
            policy=FlushPolicy(settings.flush),
            flush_interval_ms=settings.flush_interval_ms,
            open_files_max=self._open_files_max,
            entropy=self._entropy,
            cleaner_limits=CleanerLimits(settings.cleaner_memory_bytes, settings.cleaner_bytes_per_s),
            disk_limits=DiskLimits(settings.disk_reserve_bytes, settings.disk_low_bytes),
        )
        self._open.push_async_callback(store.close)
        await self._catalog.open(store.make_room)
        self._open.push_async_callback(self._catalog.close)
        partitions = await Partitions(
            self._catalog,
            store,
            clock=self._clock,
            workers=self._workers,
            cluster=ClusterMetadata.of_single_broker(await self._catalog.cluster_id(), self._endpoint()),
            defaults=topic_defaults(settings),
            limits=ProducerLimits(ids=IdLimits(settings.message_id_window_ms, settings.message_ids_max)),
            cleaning_s=settings.cleaner_interval_ms / 1000,
            partitions_max=settings.partitions_max,
            validate_records=settings.validate_records,
        ).open()
        self._open.push_async_callback(partitions.close)
        return partitions

    async def _open_groups(
        self, partitions: Partitions, configs: GroupConfigs, served: ServedIterators
    ) -> GroupCoordinator:
        groups = GroupCoordinator(
            partitions,
            configs,
            clock=self._clock,
            workers=self._workers,
            entropy=self._entropy,
            tables=self._catalog.group_tables,
            hand_down=served.told,
        )
        await groups.start()
        self._open.push_async_callback(groups.stop)
        return groups

    async def _open_operator(self, operator: Operator) -> None:
        if self.settings.operator_port == OPERATOR_OFF:
            return
        host, port = self.settings.host, self.settings.operator_port
        pages = OperatorPort(operator.pages())
        await listening("operator_port", host, port, pages.start(self._network, host, port))
        self._open.callback(pages.stop)
        self.operator_port = pages.port
        self.announce("operator", [pages.port], "metrics at /metrics, health at /health, readiness at /ready")

    def watch_children(self, findings: FindingSource, states: ChildStates = no_children) -> None:
        """Includes the processes that run beside the broker in its health, readiness and metrics."""
        self._findings_of_children, self._states_of_children = findings, states

    def _children_findings(self) -> Iterable[Finding]:
        return self._findings_of_children()

    def _child_metrics(self) -> Iterable[Metric]:
        return child_metrics(self._states_of_children())

    async def problems(self) -> list[str]:
        """Returns what is wrong with this broker, as its health page lists it."""
        assert self._health is not None, "the broker was started"
        assert self._partitions is not None, "the broker was started"
        census = await take_census(self._partitions, self._clock.monotonic_s())
        return [finding.text for finding in self._health.findings(census) if finding.is_problem]

    def announce(self, kind: str, ports: Iterable[int], detail: str) -> None:
        """Replaces the services of this kind in the service map, which clients can request: one for each port."""
        host = self.settings.advertised_host or self.settings.host
        others = [service for service in self._services if service.kind != kind]
        self._services[:] = others + [
            Service(kind, BrokerId(self.settings.node_id), host, port, detail) for port in ports
        ]


def topic_defaults(settings: BrokerSettings) -> dict[str, str]:
    """Returns the broker's settings that are defaults of topics, under the names of topic settings."""
    defaults = {
        "retention.ms": str(settings.retention_ms),
        "retention.bytes": str(settings.retention_bytes),
        "segment.bytes": str(settings.segment_bytes),
        "segment.ms": str(settings.segment_ms),
    }
    return {name: value for name, value in defaults.items() if value != TABLE[name].default}


def group_settings(settings: BrokerSettings) -> GroupSettings:
    return GroupSettings(
        session_timeout_min_ms=settings.group_session_timeout_min_ms,
        session_timeout_max_ms=settings.group_session_timeout_max_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        members_max=settings.group_max_size,
        memory_bytes=settings.group_memory_bytes,
        offsets_retention_ms=settings.offsets_retention_ms,
        offsets_partitions=settings.offsets_partitions,
        consumer_session_timeout_ms=settings.consumer_session_timeout_ms,
        consumer_session_timeout_min_ms=settings.consumer_session_timeout_min_ms,
        consumer_session_timeout_max_ms=settings.consumer_session_timeout_max_ms,
        consumer_heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        consumer_heartbeat_interval_min_ms=settings.consumer_heartbeat_interval_min_ms,
        consumer_heartbeat_interval_max_ms=settings.consumer_heartbeat_interval_max_ms,
        consumer_assignment_interval_ms=settings.consumer_assignment_interval_ms,
        iterator_in_flight_ms=min(settings.iterator_in_flight_ms, settings.iterator_in_flight_max_ms),
        iterator_in_flight_max_ms=settings.iterator_in_flight_max_ms,
    )
