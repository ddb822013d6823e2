"""Runs one gateway: serves the web API and gRPC over the same clusters."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from millstream import __version__
from millstream.gateway.budget import Budget, ReadBudget
from millstream.gateway.cluster_checks import ClusterChecks
from millstream.gateway.draining import Draining
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.http.app import make_app
from millstream.gateway.http.host_check import OWN, KnownHosts
from millstream.gateway.http.protocol import ClientTimeouts, protocol_with
from millstream.gateway.http.web_context import WebContext, WebLimits
from millstream.gateway.http_server import HttpServer
from millstream.gateway.loop_lag import LoopLag
from millstream.gateway.operations.cluster_create import ClusterCreator, NoSupervisor, Supervised
from millstream.gateway.operations.clusters import DEFAULT, ClientFactory, ServedClusters
from millstream.gateway.operator import OperatorPages
from millstream.gateway.settings import GatewaySettings
from millstream.gateway.traffic import Traffic, traffic_metrics
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.addresses import is_loopback, listening
from millstream.process.findings import Finding, OpenPort, exposure_warnings
from millstream.process.metrics import Metric, gauge
from millstream.process.settings import PORT_OFF

if TYPE_CHECKING:
    from millstream.gateway.grpc.server import GrpcServer

log = logging.getLogger(__name__)


class Gateway:
    """Owns the HTTP server, the gRPC server and the clusters of one gateway.

    A gateway is started once, drained and closed. Close it also when the start failed.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        """Check the settings and build the parts; opens no connection.

        Raises INVALID_SETTING for contradictory settings.
        """
        self._settings = settings
        self._seeds = _seeds(settings)
        self._draining = Draining()
        self._budget = Budget(settings.held_bytes_max)
        self._web_traffic, self._grpc_traffic = Traffic("http"), Traffic("grpc")
        self._clusters = ServedClusters(self._seeds, _connecting(settings, self._budget))
        self._supervisor = Supervised(Path(settings.control)) if settings.control else None
        self._http: HttpServer | None = None
        self._grpc: GrpcServer | None = None
        self._checks = ClusterChecks(self._clusters, self._is_stopped)
        self._lag = LoopLag()
        self._background: list[asyncio.Task[None]] = []
        self._started_s = asyncio.get_running_loop().time()
        self.http_port = PORT_OFF
        self.grpc_port = PORT_OFF

    @property
    def maker(self) -> ClusterCreator:
        return self._supervisor or NoSupervisor()

    async def start(self) -> None:
        """Open the ports. Raises ADDRESS_UNAVAILABLE if a port cannot be bound. No broker needs to be running."""
        settings = self._settings
        if settings.http_port != PORT_OFF:
            pages = OperatorPages(self._app(), self._draining, self.metrics, self._uptime_s, self.findings)
            app = _guarded(pages, settings, self._web_traffic)
            self._http = HttpServer(app, protocol_with(_client_timeouts(settings), self._web_traffic))
            opening = self._http.listen(settings.host, settings.http_port)
            await listening("http_port", settings.host, settings.http_port, opening)
            self.http_port = self._http.port
        if settings.grpc_port != PORT_OFF:
            self._grpc = await self._start_grpc()
            self.grpc_port = self._grpc.port
        self._run(self._checks.run(self._show_readiness))
        self._run(self._lag.run())
        if self._supervisor is not None:
            self._run(
                self._supervisor.follow(
                    self.http_port,
                    grpc_port=self.grpc_port,
                    on_change=self._serve_clusters,
                    problems=self._problems,
                )
            )

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.append(asyncio.get_running_loop().create_task(work))

    async def drain(self) -> None:
        """Stop in three steps: announce the shutdown, wait `notice_ms`, then refuse new requests.

        Requests in progress get up to `drain_ms` to finish.
        """
        self._draining.announce()
        if self._grpc is not None:
            await self._grpc.announce_shutdown()
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
        """Cut off every remaining request and close all clients."""
        self._draining.begin()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._http is not None:
            self._http.refuse()
            await self._http.drained(0.0)
        if self._grpc is not None:
            await self._grpc.stop(0.0)
        await self._clusters.close()

    def metrics(self) -> Iterable[Metric]:
        """Yield the gateway's metrics; `/metrics` adds those of the process."""
        info = {"version": __version__}
        yield Metric("millstream_gateway_info", "gauge", "Always 1; the label holds the version.", ((info, 1),))
        yield gauge(
            "millstream_gateway_ready",
            "1 while /ready is 200: the gateway accepts requests and the default cluster answers.",
            int(not self._draining.is_announced and not self._blocks_ready()),
        )
        problems = sum(finding.is_problem for finding in self._checks.findings())
        yield gauge("millstream_problems", "Problems that /health lists.", problems)
        yield gauge("millstream_gateway_uptime_seconds", "Seconds since the gateway started.", self._uptime_s())
        yield gauge("millstream_gateway_clusters", "Clusters that this gateway serves.", len(self._clusters.names))
        yield gauge("millstream_gateway_polls_waiting", "Waiting polls and streams.", self._draining.waiting_count)
        yield gauge("millstream_gateway_held_bytes", "Memory held by requests in progress.", self._budget.held_bytes)
        if self._http is not None:
            http = self._http
            yield gauge("millstream_gateway_connections", "Open HTTP connections.", http.connections)
            yield gauge("millstream_gateway_requests_under_way", "HTTP requests in progress.", http.requests_under_way)
        if self._grpc is not None:
            yield gauge("millstream_gateway_calls_under_way", "gRPC calls in progress.", self._grpc.calls_under_way)
        yield from self._lag.metrics()
        yield from traffic_metrics((self._web_traffic, self._grpc_traffic))

    def findings(self) -> list[Finding]:
        """Return the clusters that do not answer, and the gateway's ports that other hosts can reach."""
        host, ports = self._settings.host, {"the web API": self.http_port, "gRPC": self.grpc_port}
        exposed = exposure_warnings(OpenPort(name, host, port) for name, port in ports.items() if port != PORT_OFF)
        return self._checks.findings() + exposed

    async def _problems(self) -> Sequence[str]:
        return [finding.text for finding in self._checks.findings() if finding.is_problem]

    async def _show_readiness(self) -> None:
        """Show load balancers of gRPC, which use its health service, whether the default cluster is reachable."""
        if self._grpc is not None:
            await self._grpc.set_serving(not self._blocks_ready())

    def _blocks_ready(self) -> bool:
        return any(finding.blocks_ready for finding in self._checks.findings())

    def _is_stopped(self, cluster: str) -> bool:
        is_own = cluster in self._seeds
        return not is_own and self._supervisor is not None and self._supervisor.is_stopped(cluster)

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
        from millstream.gateway.grpc.server import start_grpc  # Slow to import, and gRPC may be switched off.

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
        return asyncio.get_running_loop().time() - self._started_s

    def _serve_clusters(self, seeds: Mapping[str, Sequence[str]]) -> None:
        """Serve the supervisor's clusters; a configured cluster wins over one of the same name."""
        self._clusters.update({**seeds, **self._seeds})


def _seeds(settings: GatewaySettings) -> dict[str, tuple[str, ...]]:
    """Return the seed lists of each configured cluster."""
    if settings.http_port == settings.grpc_port == PORT_OFF:
        raise MillstreamError(ErrorCode.INVALID_SETTING, "http_port and grpc_port are both off; switch on at least one")
    if DEFAULT in settings.cluster:
        raise MillstreamError(
            ErrorCode.INVALID_SETTING,
            f"cluster: the name {DEFAULT!r} is reserved; use bootstrap to configure that cluster",
        )
    return {name: (text,) for name, text in {DEFAULT: ",".join(settings.bootstrap), **settings.cluster}.items()}


def _connecting(settings: GatewaySettings, budget: Budget) -> ClientFactory:
    timeout_s = settings.request_timeout_ms / 1000
    return ClientFactory(timeout_s=timeout_s, held_bytes=settings.held_bytes_max, memory=ReadBudget(budget))


def _web_limits(settings: GatewaySettings) -> WebLimits:
    return WebLimits(settings.body_bytes_max, settings.events_max, settings.cors_origins)


def _guarded(pages: OperatorPages, settings: GatewaySettings, traffic: Traffic) -> ASGIApp:
    """Add the Host check that stops DNS rebinding, unless the settings switch it off.

    The check applies if `allowed_hosts` is set or the gateway listens on loopback only. `*` switches it off.
    """
    hosts = settings.allowed_hosts
    if "*" in hosts or not (hosts or is_loopback(settings.host)):
        return pages
    return KnownHosts(pages, (*OWN, settings.host, *hosts), traffic)


def _client_timeouts(settings: GatewaySettings) -> ClientTimeouts:
    return ClientTimeouts(
        settings.head_ms / 1000,
        settings.body_ms / 1000,
        settings.take_ms / 1000,
        connections=settings.connections_max,
    )
