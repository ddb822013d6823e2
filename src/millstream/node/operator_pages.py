"""Renders the pages of the operator port: metrics, health and readiness of one broker."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from millstream import __version__
from millstream.broker.net.listener import Listener
from millstream.groups.runtime.coordinator import GroupCoordinator
from millstream.node.health import BrokerHealth, directory_status
from millstream.node.operator_http import Page, Response, text_response
from millstream.partition.served.partitions import Partitions
from millstream.process.metrics import CONTENT_TYPE, Metric, Source, counter, gauge, render
from millstream.records.compiled import COMPILED
from millstream.seams.clock import Clock
from millstream.storage.disk_reserve import DiskReserve


class Operator:
    """Collects the metrics of the broker's parts on each request. It stores none."""

    def __init__(
        self,
        partitions: Partitions,
        groups: GroupCoordinator,
        listener: Listener,
        clock: Clock,
        process_metrics: Source,
        health: BrokerHealth,
        reserves: Sequence[DiskReserve] = (),
    ) -> None:
        self.is_ready = False
        self._health = health
        self._partitions = partitions
        self._groups = groups
        self._listener = listener
        self._clock = clock
        self._process_metrics = process_metrics
        self._reserves = reserves
        self._begun_s = clock.monotonic_s()

    def pages(self) -> Mapping[str, Page]:
        return {"/metrics": self._metrics_page, "/health": self._health_page, "/ready": self._ready_page}

    def _metrics_page(self) -> Response:
        return Response(200, CONTENT_TYPE, render([*self.metrics(), *self._process_metrics()]))

    def _health_page(self) -> Response:
        refusing, truncated = self._partitions_refusing_writes(), self._partitions_truncated()
        lacking_ids = self._partitions_lacking_ids()
        findings = self._health.findings()
        problems = [finding.text for finding in findings if finding.is_problem]
        body = {
            "status": "degraded" if problems else "ok",
            "problems": problems,
            "warnings": [finding.text for finding in findings if not finding.is_problem],
            "version": __version__,
            "uptime_s": round(self._clock.monotonic_s() - self._begun_s, 3),
            "partitions": self._partitions.count,
            "partitions_refusing_writes": refusing,
            "partitions_truncated": truncated,
            "partitions_rebuilding_message_ids": lacking_ids,
            "directories": [_directory_health(reserve) for reserve in self._reserves],
        }
        return Response(200, "application/json", msgspec.json.encode(body) + b"\n")

    def _ready_page(self) -> Response:
        if not self.is_ready:
            return text_response(503, "not ready: the broker is starting or stopping")
        reasons = self._health.reasons_not_ready()
        return text_response(503, "not ready: " + "; ".join(reasons)) if reasons else text_response(200, "ready")

    def _partitions_refusing_writes(self) -> int:
        return len(self._health.refusing())

    def _partitions_truncated(self) -> int:
        return sum(1 for replica in self._partitions.replicas() if replica.log.health.may_have_lost)

    def _partitions_lacking_ids(self) -> int:
        return sum(1 for replica in self._partitions.replicas() if replica.lacks_ids)

    def metrics(self) -> Iterable[Metric]:
        """Yields the broker's metrics. None has a label per topic, because clients can create any number of topics."""
        counters, memory = self._listener.counters, self._listener.memory
        info = {"version": __version__, "codec": "compiled" if COMPILED else "plain"}
        yield Metric("millstream_info", "gauge", "Always 1; the labels are version and codec.", ((info, 1),))
        yield gauge("millstream_ready", "1 while the broker serves clients.", int(self.is_ready))
        yield gauge("millstream_uptime_seconds", "Time since the start.", self._clock.monotonic_s() - self._begun_s)
        yield gauge("millstream_connections", "Open connections.", self._listener.connection_count)
        yield counter("millstream_connections_accepted_total", "Connections accepted.", counters.connections_accepted)
        yield counter(
            "millstream_connections_cut_total", "Connections that the broker cut off.", counters.connections_cut
        )
        yield counter(
            "millstream_connections_refused_total",
            "Connections refused because too few file descriptors are left.",
            counters.connections_refused,
        )
        yield counter("millstream_requests_total", "Requests received.", counters.requests)
        yield gauge("millstream_request_memory_bytes", "Memory held by requests in flight.", memory.incoming_bytes)
        yield gauge("millstream_response_memory_bytes", "Memory held by unread responses.", memory.outgoing_bytes)
        yield gauge("millstream_topics", "Topics.", len(self._partitions.image.names))
        budgets = self._partitions.budgets
        yield gauge("millstream_message_ids", "Message ids remembered.", budgets.ids.known)
        yield gauge("millstream_producers", "Idempotent producers remembered.", budgets.producers.known)
        yield from self._group_metrics()
        yield from self._partition_metrics()

    def _partition_metrics(self) -> Iterable[Metric]:
        logs = [replica.log for replica in self._partitions.replicas()]
        yield gauge("millstream_partitions", "Partitions served.", len(logs))
        refusing = self._partitions_refusing_writes()
        yield gauge(
            "millstream_partitions_refusing_writes", "Partitions that refuse writes, or did recently.", refusing
        )
        yield gauge(
            "millstream_partitions_truncated",
            "Partitions that this start truncated, perhaps below acknowledged messages.",
            self._partitions_truncated(),
        )
        yield gauge(
            "millstream_partitions_rebuilding_message_ids",
            "Partitions whose message ids are lost or damaged in part.",
            self._partitions_lacking_ids(),
        )
        yield gauge("millstream_log_bytes", "Size of all logs.", sum(log.size_bytes for log in logs))
        messages = sum(log.end_offset - log.start_offset for log in logs)
        yield gauge("millstream_log_messages", "Offsets in all logs.", messages)

    def _group_metrics(self) -> Iterable[Metric]:
        groups = self._groups.figures()
        yield gauge("millstream_groups", "Consumer groups.", groups.groups)
        yield gauge("millstream_group_members", "Members of all groups.", groups.members)
        yield gauge(
            "millstream_group_memory_bytes", "Memory of the members' metadata and assignments.", groups.member_bytes
        )
        yield gauge("millstream_group_partitions_loading", "Group log partitions not loaded yet.", groups.loading)
        yield counter("millstream_group_rebalances_total", "New generations and epochs of groups.", groups.rebalances)
        yield counter("millstream_group_offsets_committed_total", "Offsets committed.", groups.offsets_committed)


def _directory_health(reserve: DiskReserve) -> dict[str, object]:
    space = reserve.space
    free = {"free_bytes": space.free_bytes, "total_bytes": space.total_bytes} if space is not None else {}
    return {"path": reserve.directory, "status": directory_status(reserve), **free}
