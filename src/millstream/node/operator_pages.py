"""Renders the pages of the operator port: metrics, health and readiness of one broker.

The pages store nothing. Each request reads the current figures of the broker's components (see `metric_sources`).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from millstream import __version__
from millstream.node.health import BrokerHealth, directory_status
from millstream.node.metric_sources import partition_metrics
from millstream.node.operator_http import Page, Response, text_response
from millstream.node.partition_census import CountedPartitions, PartitionCensus, take_census
from millstream.process.metrics import CONTENT_TYPE, Metric, Source, gauge, render_in_slices
from millstream.records.compiled import COMPILED
from millstream.seams.clock import Clock
from millstream.storage.disk_reserve import DiskReserve


class Operator:
    """Collects metrics from `sources`, and the problems of the broker from `health`, on each request."""

    def __init__(
        self,
        sources: Sequence[Source],
        partitions: CountedPartitions,
        clock: Clock,
        health: BrokerHealth,
        reserves: Sequence[DiskReserve] = (),
    ) -> None:
        self.is_ready = False
        self._sources = sources
        self._partitions = partitions
        self._health = health
        self._clock = clock
        self._reserves = reserves
        self._begun_s = clock.monotonic_s()
        self._scrape = asyncio.Lock()

    def pages(self) -> Mapping[str, Page]:
        return {"/metrics": self._metrics_page, "/health": self._health_page, "/ready": self._ready_page}

    async def _metrics_page(self) -> Response:
        async with self._scrape:
            census = await take_census(self._partitions, self._clock.monotonic_s())
            metrics = (metric for source in self._sources for metric in source())
            text = await render_in_slices(chain(self._own_metrics(census), metrics, partition_metrics(census)))
        return Response(200, CONTENT_TYPE, text)

    def _own_metrics(self, census: PartitionCensus) -> Iterable[Metric]:
        info = {"version": __version__, "codec": "compiled" if COMPILED else "plain"}
        yield Metric("millstream_info", "gauge", "Always 1; the labels are version and codec.", ((info, 1),))
        yield gauge("millstream_ready", "1 while the broker serves clients.", int(self.is_ready))
        problems = sum(finding.is_problem for finding in self._health.findings(census))
        yield gauge("millstream_problems", "Problems that /health lists.", problems)
        yield gauge("millstream_uptime_seconds", "Time since the start.", self._clock.monotonic_s() - self._begun_s)

    async def _health_page(self) -> Response:
        census = await take_census(self._partitions, self._clock.monotonic_s())
        findings = self._health.findings(census)
        problems = [finding.text for finding in findings if finding.is_problem]
        body = {
            "status": "degraded" if problems else "ok",
            "problems": problems,
            "warnings": [finding.text for finding in findings if not finding.is_problem],
            "version": __version__,
            "uptime_s": round(self._clock.monotonic_s() - self._begun_s, 3),
            "partitions": census.replicas,
            "partitions_refusing_writes": len(census.refusing),
            "partitions_truncated": len(census.truncated),
            "partitions_rebuilding_message_ids": len(census.lacking_ids),
            "directories": [_directory_health(reserve) for reserve in self._reserves],
        }
        return Response(200, "application/json", msgspec.json.encode(body) + b"\n")

    def _ready_page(self) -> Response:
        if not self.is_ready:
            return text_response(503, "not ready: the broker is starting or stopping")
        reasons = self._health.reasons_not_ready()
        return text_response(503, "not ready: " + "; ".join(reasons)) if reasons else text_response(200, "ready")


def _directory_health(reserve: DiskReserve) -> dict[str, object]:
    space = reserve.space
    free = {"free_bytes": space.free_bytes, "total_bytes": space.total_bytes} if space is not None else {}
    return {"path": reserve.directory, "status": directory_status(reserve), **free}
