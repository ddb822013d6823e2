"""What the operator's pages say: figures, health and readiness of one broker."""

from collections.abc import Iterable, Mapping

import msgspec

from millstream import __version__
from millstream.broker.net.listener import Listener
from millstream.groups.runtime.coordinator import Coordinator
from millstream.node.operator_http import Page, Response, text_response
from millstream.partition.partition import Partition
from millstream.partition.served.partitions import Partitions
from millstream.process.metrics import CONTENT_TYPE, Metric, Source, counter, gauge, render
from millstream.records.compiled import COMPILED
from millstream.seams.clock import Clock

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
        yield Metric("millstream_info", "gauge", "Always 1; the labels say what runs.", ((info, 1),))
        yield gauge("millstream_ready", "1 while clients are served.", int(self.is_ready))
        yield gauge("millstream_uptime_seconds", "Time since the start.", self._clock.monotonic_s() - self._begun_s)
        yield gauge("millstream_connections", "Connections that are open.", self._listener.connection_count)
        yield counter("millstream_connections_accepted_total", "Connections accepted.", counters.connections_accepted)
        yield counter("millstream_connections_cut_total", "Connections cut off for a reason.", counters.connections_cut)
        yield counter("millstream_requests_total", "Requests received.", counters.requests)
        yield gauge("millstream_request_memory_bytes", "Held by requests under way.", memory.incoming_bytes)
        yield gauge("millstream_answer_memory_bytes", "Held by answers not yet taken.", memory.outgoing_bytes)
        yield gauge("millstream_topics", "Topics.", len(self._partitions.topics()))
        yield gauge("millstream_partitions", "Partitions served.", len(logs))
        yield gauge("millstream_message_ids", "Message ids known.", self._partitions.budgets.ids.known)
        yield gauge("millstream_producers", "Idempotent producers remembered.", self._partitions.producers_known)
        yield from self._group_metrics()
        refusing = self._partitions_refusing_writes()
        yield gauge(
            "millstream_partitions_refusing_writes", "Partitions that refuse writes, or did just now.", refusing
        )
        yield gauge("millstream_log_bytes", "Bytes kept, all partitions together.", sum(log.size_bytes for log in logs))
        messages = sum(log.end_offset - log.start_offset for log in logs)
        yield gauge("millstream_log_messages", "Offsets kept, all partitions together.", messages)

    def _group_metrics(self) -> Iterable[Metric]:
        groups = self._groups.figures()
        yield gauge("millstream_groups", "Consumer groups.", groups.groups)
        yield gauge("millstream_group_members", "Members of all groups together.", groups.members)
        yield gauge("millstream_group_partitions_loading", "Parts of the groups' state not loaded.", groups.loading)
        yield counter("millstream_group_rebalances_total", "Generations and epochs begun by groups.", groups.rebalances)
        yield counter("millstream_group_offsets_committed_total", "Offsets committed.", groups.offsets_committed)


def _is_refusing(partition: Partition, now_s: float) -> bool:
    log = partition.log
    if log.broken is not None or log.quarantined is not None or partition.is_suspended:
        return True
    return log.refused_s is not None and now_s - log.refused_s < REFUSED_LATELY_S
