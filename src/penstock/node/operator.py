"""What the operator's pages say: figures, health and readiness of one broker."""

from collections.abc import Iterable, Mapping

import msgspec

from penstock import __version__
from penstock.broker.listener import Listener
from penstock.groups.coordinator import Coordinator
from penstock.model.clock import Clock
from penstock.node.http import Page, Response, text_response
from penstock.partition.partition import Partition
from penstock.partition.partitions import Partitions
from penstock.process.metrics import CONTENT_TYPE, Metric, Source, counter, gauge, render
from penstock.records.compiled import COMPILED

REFUSED_LATELY_S = 30.0
"""So long a write that the disk refused counts. A disk that is nearly full takes small writes between large ones, so
that a partition works at this moment says little."""


class Operator:
    """Asks the parts for their figures when somebody looks, and keeps none."""

    def __init__(
        self,
        partitions: Partitions,
        groups: Coordinator,
        listener: Listener,
        clock: Clock,
        process_metrics: Source,
    ) -> None:
        self.is_ready = False
        self._partitions = partitions
        self._groups = groups
        self._listener = listener
        self._clock = clock
        self._process_metrics = process_metrics
        self._begun_s = clock.monotonic_s()

    def pages(self) -> Mapping[str, Page]:
        return {"/metrics": self._metrics_page, "/health": self._health_page, "/ready": self._ready_page}

    def _metrics_page(self) -> Response:
        return Response(200, CONTENT_TYPE, render([*self.metrics(), *self._process_metrics()]))

    def _health_page(self) -> Response:
        refusing = self._partitions_refusing_writes()
        body = {
            "status": "degraded" if refusing else "ok",
            "version": __version__,
            "uptime_s": round(self._clock.monotonic_s() - self._begun_s, 3),
            "partitions": self._partitions.count,
            "partitions_refusing_writes": refusing,
        }
        return Response(200, "application/json", msgspec.json.encode(body) + b"\n")

    def _ready_page(self) -> Response:
        return text_response(200, "ready") if self.is_ready else text_response(503, "not ready")

    def _partitions_refusing_writes(self) -> int:
        now_s = self._clock.monotonic_s()
        return sum(1 for partition in self._partitions.all() if _is_refusing(partition, now_s))

    def metrics(self) -> Iterable[Metric]:
        """The broker's figures. None has a label per topic: clients can make any number of those."""
        counters, memory = self._listener.counters, self._listener.memory
        logs = [partition.log for partition in self._partitions.all()]
        info = {"version": __version__, "codec": "compiled" if COMPILED else "plain"}
        yield Metric("penstock_info", "gauge", "Always 1; the labels say what runs.", ((info, 1),))
        yield gauge("penstock_ready", "1 while clients are served.", int(self.is_ready))
        yield gauge("penstock_uptime_seconds", "Time since the start.", self._clock.monotonic_s() - self._begun_s)
        yield gauge("penstock_connections", "Connections that are open.", self._listener.connection_count)
        yield counter("penstock_connections_accepted_total", "Connections accepted.", counters.connections_accepted)
        yield counter("penstock_connections_cut_total", "Connections cut off for a reason.", counters.connections_cut)
        yield counter("penstock_requests_total", "Requests received.", counters.requests)
        yield gauge("penstock_request_memory_bytes", "Held by requests under way.", memory.incoming_bytes)
        yield gauge("penstock_answer_memory_bytes", "Held by answers not yet taken.", memory.outgoing_bytes)
        yield gauge("penstock_topics", "Topics.", len(self._partitions.topics()))
        yield gauge("penstock_partitions", "Partitions served.", len(logs))
        yield gauge("penstock_message_ids", "Message ids known.", self._partitions.budgets.ids.known)
        yield gauge("penstock_producers", "Idempotent producers remembered.", self._partitions.producers_known)
        yield from self._group_metrics()
        refusing = self._partitions_refusing_writes()
        yield gauge("penstock_partitions_refusing_writes", "Partitions that refuse writes, or did just now.", refusing)
        yield gauge("penstock_log_bytes", "Bytes kept, all partitions together.", sum(log.size_bytes for log in logs))
        messages = sum(log.end_offset - log.start_offset for log in logs)
        yield gauge("penstock_log_messages", "Offsets kept, all partitions together.", messages)

    def _group_metrics(self) -> Iterable[Metric]:
        groups = self._groups.figures()
        yield gauge("penstock_groups", "Consumer groups.", groups.groups)
        yield gauge("penstock_group_members", "Members of all groups together.", groups.members)
        yield gauge("penstock_group_partitions_loading", "Parts of the groups' state not loaded.", groups.loading)
        yield counter("penstock_group_rebalances_total", "Generations and epochs begun by groups.", groups.rebalances)
        yield counter("penstock_group_offsets_committed_total", "Offsets committed.", groups.offsets_committed)


def _is_refusing(partition: Partition, now_s: float) -> bool:
    log = partition.log
    if log.broken is not None or log.quarantined is not None or partition.is_suspended:
        return True
    return log.refused_s is not None and now_s - log.refused_s < REFUSED_LATELY_S
