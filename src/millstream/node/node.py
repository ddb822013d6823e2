"""One broker, put together from its parts. What it runs on is handed in, so a simulation runs the very same node.

Order of start: the store takes the data directories' locks and recovers the logs; the catalog says which topics there
are; the partitions rebuild their state, and groups begin to load theirs; then the sockets open. Stopping goes the other
way round. Whatever has been opened is closed again, also when a later step fails.
"""

import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack

from millstream import __version__
from millstream.broker.dispatch.apis import ApiDependencies, build_table
from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.net.listener import Listener
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.signed_iterators import SECRET, IteratorServing, IteratorSigner
from millstream.catalog.catalog import Catalog
from millstream.catalog.producer_ids import ProducerIds
from millstream.groups.iterators.served_iterators import ServedIterators
from millstream.groups.runtime.coordinator import Coordinator
from millstream.groups.settings import GroupSettings
from millstream.model.services import NO_PORT, Service
from millstream.node.broker_configs import shown_settings
from millstream.node.operator_http import OperatorPort
from millstream.node.operator_pages import Operator
from millstream.node.settings import BrokerSettings
from millstream.partition.derived_state import ProducerLimits
from millstream.partition.message_ids.limits import IdLimits
from millstream.partition.served.partitions import Partitions
from millstream.process.addresses import listening
from millstream.process.metrics import Metric, Source
from millstream.records.compiled import COMPILED
from millstream.seams.clock import Clock
from millstream.seams.disk import Disk
from millstream.seams.entropy import Entropy
from millstream.seams.network import Network
from millstream.seams.workers import Workers
from millstream.storage.cleaning.cleaner import CleanerLimits
from millstream.storage.store import OPEN_FILES_MAX, FlushPolicy, LogStore
from millstream.topics.setting_table import TABLE

log = logging.getLogger(__name__)

GRACE_S = 0.4
"""How long requests under way may take to be answered when the broker stops."""

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
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
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
        self._open_files_max = open_files_max
        self._open = AsyncExitStack()
        self._services: list[Service] = []
        self._operator: Operator | None = None
        self._partitions: Partitions | None = None

    async def start(self) -> None:
        """Recover what is there and serve it. After an error, `stop` must still be called.

        Raises DATA_DIRECTORY_IN_USE, DATA_DIRECTORY_MISSING or CATALOG_REFUSED when the data cannot be served,
        ADDRESS_UNAVAILABLE when a port is taken, OSError when the disk fails.
        """
        settings = self.settings
        partitions = self._partitions = await self._open_partitions()
        identity = BrokerIdentity(
            settings.node_id,
            settings.advertised_host or settings.host,
            settings.kafka_port,
            await self._catalog.cluster_id(),
        )
        iterators = IteratorServing(
            IteratorSigner(await self._catalog.secret(SECRET)),
            ServedIterators(self._clock, settings.iterator_in_flight_max_ms),
        )
        groups = await self._open_groups(partitions, iterators.served)
        self.announce("catalog", [NO_PORT], f"{self._catalog.kind}, within the broker")
        memory = MemoryLimits(settings.request_memory_bytes, settings.answer_memory_bytes)
        table = build_table(
            ApiDependencies(
                partitions,
                groups,
                self._catalog,
                ProducerIds(self._catalog, settings.node_id),
                identity,
                self._clock,
                self._entropy,
                memory,
                __version__,
                iterators,
                auto_create=settings.auto_create,
                default_partitions=settings.default_partitions,
                at_start=tuple(shown_settings(settings, group_settings(settings))),
                group_settings=group_settings(settings),
                services=self._services,
                machine=self._network.machine,
                features={"codec": "compiled" if COMPILED else "plain", "flush": settings.flush},
            )
        )
        listener = Listener(table, self._clock, memory, self._workers)
        self._operator = Operator(partitions, groups, listener, self._clock, self._process_metrics)
        await self._open_operator(self._operator)
        self._open.push_async_callback(listener.stop, GRACE_S)
        opened = await listening(
            "kafka_port",
            settings.host,
            settings.kafka_port,
            listener.start(self._network, settings.host, settings.kafka_port),
        )
        self.kafka_port = identity.port = opened.port
        await self._catalog.register_broker(settings.node_id, identity.host, identity.port)
        self._operator.is_ready = True
        log.info("ready", extra={"host": settings.host, "port": self.kafka_port, "partitions": partitions.count})

    async def upkeep(self) -> None:
        """Do now what otherwise happens from time to time: retention, saving state, trying again what failed."""
        if self._partitions is not None:
            await self._partitions.upkeep()

    async def stop(self) -> None:
        """Answer what is under way, flush, write checkpoints, and let everything go."""
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
        )
        self._open.push_async_callback(store.close)
        await self._catalog.open()
        self._open.push_async_callback(self._catalog.close)
        partitions = await Partitions(
            self._catalog,
            store,
            clock=self._clock,
            workers=self._workers,
            node_id=settings.node_id,
            defaults=topic_defaults(settings),
            limits=ProducerLimits(ids=IdLimits(settings.message_id_window_ms, settings.message_ids_max)),
            cleaning_s=settings.cleaner_interval_ms / 1000,
        ).open()
        self._open.push_async_callback(partitions.close)
        return partitions

    async def _open_groups(self, partitions: Partitions, served: ServedIterators) -> Coordinator:
        groups = Coordinator(
            partitions,
            group_settings(self.settings),
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

    def announce(self, kind: str, ports: Iterable[int], detail: str) -> None:
        """Have clients told that services of this kind run here, on these ports and on no others."""
        host = self.settings.advertised_host or self.settings.host
        others = [service for service in self._services if service.kind != kind]
        self._services[:] = others + [Service(kind, self.settings.node_id, host, port, detail) for port in ports]


def topic_defaults(settings: BrokerSettings) -> dict[str, str]:
    """What the broker was told about all topics, under the names that a topic would give it."""
    told = {
        "retention.ms": str(settings.retention_ms),
        "retention.bytes": str(settings.retention_bytes),
        "segment.bytes": str(settings.segment_bytes),
        "segment.ms": str(settings.segment_ms),
    }
    return {name: value for name, value in told.items() if value != TABLE[name].default}


def group_settings(settings: BrokerSettings) -> GroupSettings:
    return GroupSettings(
        session_timeout_min_ms=settings.group_session_timeout_min_ms,
        session_timeout_max_ms=settings.group_session_timeout_max_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        members_max=settings.group_max_size,
        offsets_retention_ms=settings.offsets_retention_ms,
        offsets_partitions=settings.offsets_partitions,
        consumer_session_timeout_ms=settings.consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        consumer_assignment_interval_ms=settings.consumer_assignment_interval_ms,
        iterator_in_flight_ms=min(settings.iterator_in_flight_ms, settings.iterator_in_flight_max_ms),
        iterator_in_flight_max_ms=settings.iterator_in_flight_max_ms,
    )
