"""One gateway, put together from its parts: both interfaces over the same clusters."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from millstream import __version__
from millstream.gateway.budget import Budget
from millstream.gateway.draining import Draining
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.http.app import make_app
from millstream.gateway.http.host_check import OWN, KnownHosts
from millstream.gateway.http.protocol import ClientTimeouts, protocol_with
from millstream.gateway.http.web_context import WebContext, WebLimits
from millstream.gateway.http_server import HttpServer
from millstream.gateway.operations.cluster_create import ClusterCreator, NoSupervisor, Supervised
from millstream.gateway.operations.clusters import DEFAULT, ClientFactory, ServedClusters
from millstream.gateway.operator import OperatorPages
from millstream.gateway.settings import GatewaySettings
from millstream.gateway.traffic import Traffic, traffic_metrics
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.addresses import is_loopback, listening
from millstream.process.metrics import Metric, gauge
from millstream.process.settings import PORT_OFF

if TYPE_CHECKING:
    from millstream.gateway.grpc.server import GrpcServer

log = logging.getLogger(__name__)


class Gateway:
    """Can be started once, drained, and closed; close it also when the start has failed."""

    def __init__(self, settings: GatewaySettings) -> None:
        """Connects nothing. INVALID_SETTING where settings contradict each other."""
        self._settings = settings
        self._seeds = _seeds(settings)
        self._draining = Draining()
        self._budget = Budget(settings.held_bytes_max)
        self._web_traffic, self._grpc_traffic = Traffic("http"), Traffic("grpc")
        self._clusters = ServedClusters(self._seeds, _connecting(settings))
        self._supervisor = Supervised(Path(settings.control)) if settings.control else None
        self._http: HttpServer | None = None
        self._grpc: GrpcServer | None = None
        self._following: asyncio.Task[None] | None = None
        self._begun_s = asyncio.get_running_loop().time()
        self.http_port = PORT_OFF
        self.grpc_port = PORT_OFF

    @property
    def maker(self) -> ClusterCreator:
        return self._supervisor or NoSupervisor()

    async def start(self) -> None:
        """Open the ports; ADDRESS_UNAVAILABLE when one cannot be had. No broker has to be there."""
        settings = self._settings
        if settings.http_port != PORT_OFF:
            pages = OperatorPages(self._app(), self._draining, self.metrics, self._uptime_s)
            self._http = HttpServer(_guarded(pages, settings), protocol_with(_patience(settings)))
            opening = self._http.listen(settings.host, settings.http_port)
            await listening("http_port", settings.host, settings.http_port, opening)
            self.http_port = self._http.port
        if settings.grpc_port != PORT_OFF:
            self._grpc = await self._start_grpc()
            self.grpc_port = self._grpc.port
        if self._supervisor is not None:
            following = self._supervisor.follow(self.http_port, self.grpc_port, self._learn)
            self._following = asyncio.get_running_loop().create_task(following)

    async def drain(self) -> None:
        """Say so; after the notice let nobody new in, and finish what is under way for as long as settings allow."""
        self._draining.announce()
        if self._grpc is not None:
            await self._grpc.say_it_ends()
        await asyncio.sleep(self._settings.notice_ms / 1000)
        self._draining.begin()
        limit_s = self._settings.drain_ms / 1000
        grpc, self._grpc = self._grpc, None
        ending: list[Coroutine[Any, Any, object]] = [grpc.stop(limit_s)] if grpc else []
        if self._http is not None:
            self._http.refuse()
            ending.append(self._http.drained(limit_s))
        await asyncio.gather(*ending)

    async def close(self) -> None:
        """Let everything go."""
        self._draining.begin()
        if self._following is not None:
            self._following.cancel()
        if self._http is not None:
            self._http.refuse()
            await self._http.drained(0.0)
        if self._grpc is not None:
            await self._grpc.stop(0.0)
        await self._clusters.close()

    def metrics(self) -> Iterable[Metric]:
        """The gateway's figures; /metrics adds those of the process."""
        info = {"version": __version__}
        yield Metric("millstream_gateway_info", "gauge", "Always 1; the label says what runs.", ((info, 1),))
        yield gauge("millstream_gateway_ready", "1 while requests are taken.", int(not self._draining.is_announced))
        yield gauge("millstream_gateway_uptime_seconds", "Time since the start.", self._uptime_s())
        yield gauge("millstream_gateway_clusters", "Clusters that are served.", len(self._clusters.names))
        yield gauge("millstream_gateway_polls_waiting", "Polls and streams that wait.", self._draining.waiting_count)
        yield gauge("millstream_gateway_held_bytes", "What requests under way hold.", self._budget.held_bytes)
        if self._http is not None:
            http = self._http
            yield gauge("millstream_gateway_connections", "HTTP connections that are open.", http.connections)
            yield gauge("millstream_gateway_requests_under_way", "HTTP requests under way.", http.requests_under_way)
        if self._grpc is not None:
            yield gauge("millstream_gateway_calls_under_way", "gRPC calls under way.", self._grpc.calls_under_way)
        yield from traffic_metrics((self._web_traffic, self._grpc_traffic))

    def _app(self) -> ASGIApp:
        limits = _web_limits(self._settings)
        site = WebContext(
            self._clusters,
            limits=limits,
            maker=self.maker,
            draining=self._draining,
            budget=self._budget,
            traffic=self._web_traffic,
        )
        return make_app(site)

    async def _start_grpc(self) -> "GrpcServer":
        from millstream.gateway.grpc.server import start_grpc  # Takes a while, and not every gateway has it.

        settings = self._settings
        return await start_grpc(
            self._clusters,
            host=settings.host,
            port=settings.grpc_port,
            maker=self.maker,
            draining=self._draining,
            limits=GrpcLimits(settings.body_bytes_max, settings.events_max),
            budget=self._budget,
            traffic=self._grpc_traffic,
        )

    def _uptime_s(self) -> float:
        return asyncio.get_running_loop().time() - self._begun_s

    def _learn(self, seeds: Mapping[str, Sequence[str]]) -> None:
        """Clusters that were told at the start win over those of the supervisor."""
        self._clusters.tell({**seeds, **self._seeds})


def _seeds(settings: GatewaySettings) -> dict[str, tuple[str, ...]]:
    """Seed lists by cluster."""
    if settings.http_port == settings.grpc_port == PORT_OFF:
        raise MillstreamError(ErrorCode.INVALID_SETTING, "http_port and grpc_port are both off: there is nothing to do")
    if DEFAULT in settings.cluster:
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"cluster names {DEFAULT!r}, which bootstrap is for")
    return {name: (text,) for name, text in {DEFAULT: ",".join(settings.bootstrap), **settings.cluster}.items()}


def _connecting(settings: GatewaySettings) -> ClientFactory:
    return ClientFactory(timeout_s=settings.request_timeout_ms / 1000, held_bytes=settings.held_bytes_max)


def _web_limits(settings: GatewaySettings) -> WebLimits:
    return WebLimits(settings.body_bytes_max, settings.events_max, settings.cors_origins)


def _guarded(pages: OperatorPages, settings: GatewaySettings) -> ASGIApp:
    """Where only this machine can ask, pages of others in its browsers could still, under a name of their own."""
    hosts = settings.allowed_hosts
    if "*" in hosts or not (hosts or is_loopback(settings.host)):
        return pages
    return KnownHosts(pages, (*OWN, settings.host, *hosts))


def _patience(settings: GatewaySettings) -> ClientTimeouts:
    return ClientTimeouts(
        settings.head_ms / 1000,
        settings.body_ms / 1000,
        settings.take_ms / 1000,
        connections=settings.connections_max,
    )
