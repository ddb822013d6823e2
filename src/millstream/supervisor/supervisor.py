"""Runs the other processes of `millstream serve`: a gateway, and the brokers of local clusters.

The broker does not depend on them: it is ready before they start, and continues if they fail. The gateway stops first,
while the brokers can still answer its requests in flight.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.node import Node
from millstream.node.settings import BrokerSettings
from millstream.process.client_events import NamedCaller, set_caller
from millstream.process.control_protocol import SOCKET_NAME, ClusterFacts, ControlRequest
from millstream.process.findings import Finding, OpenPort, exposure_warnings
from millstream.process.settings import PORT_OFF
from millstream.seams.workers import Workers
from millstream.supervisor.child_pings import ChildPings
from millstream.supervisor.clusters.local_clusters import LocalClusters
from millstream.supervisor.control_socket import ControlSocket
from millstream.supervisor.gateway_start import gateway_command, runs_gateway
from millstream.supervisor.managed_gateway import ManagedGateway

log = logging.getLogger(__name__)


class Supervisor:
    """Starts and stops the processes that run beside `node`. `settings` must be fully resolved."""

    def __init__(self, settings: BrokerSettings, node: Node, workers: Workers) -> None:
        self._settings = settings
        self._node = node
        data = Path(settings.data[0])
        self._socket_path = data / SOCKET_NAME
        self._clusters = LocalClusters(data, settings, workers, self._changed)
        self._pings = ChildPings(self._serving)
        self._pinging: asyncio.Task[None] | None = None
        self._socket = ControlSocket(
            self._socket_path, self._serve, self._clusters.facts, self._gateways_changed, self._pings
        )
        self._gateway: ManagedGateway | None = None
        self._failures: list[Finding] = []
        """Failures of the start, which last until the process ends."""
        self._gateway_ports: Sequence[OpenPort] = ()

    async def start(self) -> None:
        """Starts the control socket, the stored clusters and the gateway. Logs failures and continues."""
        try:
            await self._socket.open()
            self._pinging = asyncio.get_running_loop().create_task(self._pings.run(), name="ping children")
        except OSError as problem:
            fields = {"socket": str(self._socket_path), "error": str(problem)}
            log.warning("control socket not opened, local clusters cannot be managed", extra=fields)
            self._failures.append(Finding(f"local clusters cannot be managed: {self._socket_path}: {problem}"))
        try:
            await self._clusters.open()
        except OSError as problem:
            log.error("stored clusters not read", extra={"error": str(problem)})
            self._failures.append(Finding(f"the stored local clusters cannot be read: {problem}"))
        if runs_gateway(self._settings):
            self._gateway = ManagedGateway(self._gateway_command)
            self._gateway.start()
        self._node.watch_children(self.findings, self.children)

    def findings(self) -> list[Finding]:
        """Returns what is wrong with the child processes, and their ports that other hosts can reach."""
        found = [*self._failures, *self._findings_of_gateway()]
        ports = [*self._gateway_ports]
        for cluster in self._clusters.facts():
            for broker, pid in (
                () if cluster.is_stopped else zip(cluster.brokers, self._clusters.pids(cluster.name), strict=True)
            ):
                name = f"broker {broker.node_id} of the cluster {cluster.name}"
                if broker.is_running:
                    ports.append(OpenPort(f"the Kafka port of {name}", self._settings.host, broker.port))
                    found += self._pings.findings(name, pid)
                else:
                    found.append(Finding(broker.problem or f"{name} is starting"))
        return found + exposure_warnings(ports)

    def _serving(self) -> Iterator[int]:
        """Yields the child processes that serve clients."""
        pids = [self._gateway.serving_pid if self._gateway is not None else None]
        for cluster in self._clusters.facts():
            brokers = zip(cluster.brokers, self._clusters.pids(cluster.name), strict=True)
            pids += [pid for broker, pid in brokers if broker.is_running]
        yield from (pid for pid in pids if pid is not None)

    def _findings_of_gateway(self) -> Sequence[Finding]:
        if self._gateway is None:
            return ()
        pid = self._gateway.serving_pid
        return [*self._gateway.findings(), *self._pings.findings("the gateway", pid, blocks_ready=True)]

    def children(self) -> dict[str, bool]:
        """Returns for each child process that should run whether it serves clients."""
        states: dict[str, bool] = {}
        if self._gateway is not None and self._gateway.is_installed:
            pid = self._gateway.serving_pid
            states["gateway"] = pid is not None and not self._pings.is_silent(pid)
        for cluster in self._clusters.facts():
            if cluster.is_stopped:
                continue
            for broker, pid in zip(cluster.brokers, self._clusters.pids(cluster.name), strict=True):
                is_up = broker.is_running and not self._pings.is_silent(pid)
                states[f"{cluster.name}/broker-{broker.node_id}"] = is_up
        return states

    async def stop(self) -> None:
        """Stops the gateway, then the clusters' brokers."""
        if self._pinging is not None:
            self._pinging.cancel()
        if self._gateway is not None:
            await self._gateway.stop()
        self._socket.close()
        await self._clusters.close()

    def _gateway_command(self) -> Sequence[str]:
        return [*gateway_command(self._settings, self._node.kafka_port), "--control", str(self._socket_path)]

    async def _serve(self, request: ControlRequest) -> tuple[ClusterFacts, ...]:
        if request.verb == "list":
            return self._clusters.facts()
        set_caller(NamedCaller(request.peer or "this machine", request.client_id or None))
        if request.verb == "create":
            if request.cluster is None:
                raise MillstreamError(ErrorCode.INVALID_REQUEST, "cluster: required for create")
            return (await self._clusters.create(request.cluster),)
        act = {"start": self._clusters.start, "stop": self._clusters.stop, "delete": self._clusters.delete}
        if request.verb not in act:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"verb: {request.verb} is not possible here")
        return (await act[request.verb](request.name),)

    def _changed(self) -> None:
        self._socket.tell()

    def _gateways_changed(self, gateways: list[ControlRequest]) -> None:
        """Updates the service map with the running gateways."""
        http = [each.http_port for each in gateways if each.http_port != PORT_OFF]
        grpc = [each.grpc_port for each in gateways if each.grpc_port != PORT_OFF]
        host = self._settings.host
        web = [OpenPort("the web API", host, port) for port in http]
        self._gateway_ports = web + [OpenPort("gRPC", host, port) for port in grpc]
        self._node.announce("http", http, "web API; documentation at /docs")
        self._node.announce("grpc", grpc, "gRPC, with server reflection")
