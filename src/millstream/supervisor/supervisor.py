"""What `millstream serve` runs besides its broker: a gateway in its own process, and the brokers of further clusters.

The broker waits for none of it: it is ready before they are started, and goes on when they fail. On the way out the
gateway ends first, while there are still brokers that answer what it has under way.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.node import Node
from millstream.node.settings import BrokerSettings
from millstream.process.addresses import reachable_host
from millstream.process.control_protocol import SOCKET_NAME, ClusterFacts, ControlRequest
from millstream.process.exit_codes import EXIT_NOT_INSTALLED, EXIT_SETTINGS
from millstream.process.parent_watch import environment_of_child
from millstream.process.settings import PORT_OFF
from millstream.seams.workers import Workers
from millstream.supervisor.children import Child, millstream_command
from millstream.supervisor.clusters.local_clusters import LocalClusters
from millstream.supervisor.control_socket import ControlSocket

log = logging.getLogger(__name__)

GATEWAY_LIMIT_S = 10.0
"""A gateway bounds its own end; this is for one that does not."""


class Supervisor:
    """Starts and ends the other processes of `node`, whose settings are written out in full."""

    def __init__(self, settings: BrokerSettings, node: Node, workers: Workers) -> None:
        self._settings = settings
        self._node = node
        data = Path(settings.data[0])
        self._socket_path = data / SOCKET_NAME
        self._clusters = LocalClusters(data, settings, workers, self._changed)
        self._socket = ControlSocket(self._socket_path, self._serve, self._clusters.facts, self._gateways_changed)
        self._gateway: Child | None = None

    async def start(self) -> None:
        """Start what there is to start; what cannot be started is told in the log."""
        try:
            await self._socket.open()
        except OSError as problem:
            told = {"socket": str(self._socket_path), "why": str(problem)}
            log.warning("no clusters can be made: there is no control socket", extra=told)
        try:
            await self._clusters.open()
        except OSError as problem:
            log.error("the clusters that were made cannot be read", extra={"why": str(problem)})
        if (self._settings.http_port, self._settings.grpc_port) != (PORT_OFF, PORT_OFF):
            hopeless = (EXIT_SETTINGS, EXIT_NOT_INSTALLED)
            self._gateway = Child("gateway", self._gateway_command, environment_of_child(), hopeless=hopeless)
            self._gateway.start()

    async def stop(self) -> None:
        """End the gateway, then the clusters' brokers."""
        if self._gateway is not None:
            await self._gateway.stop(GATEWAY_LIMIT_S)
        self._socket.close()
        await self._clusters.close()

    def _gateway_command(self) -> Sequence[str]:
        settings = self._settings
        return millstream_command(
            "gateway",
            *("--bootstrap", f"{reachable_host(settings.host)}:{self._node.kafka_port}"),
            *("--host", settings.host),
            *("--http-port", str(settings.http_port)),
            *("--grpc-port", str(settings.grpc_port)),
            *("--control", str(self._socket_path)),
            *("--log-level", settings.log_level),
            *("--log-format", settings.log_format),
        )

    async def _serve(self, request: ControlRequest) -> tuple[ClusterFacts, ...]:
        if request.verb == "list":
            return self._clusters.facts()
        if request.verb == "create":
            if request.cluster is None:
                raise MillstreamError(ErrorCode.INVALID_REQUEST, "create needs a cluster")
            return (await self._clusters.create(request.cluster),)
        act = {"start": self._clusters.start, "stop": self._clusters.stop, "delete": self._clusters.delete}
        return (await act[request.verb](request.name),)

    def _changed(self) -> None:
        self._socket.tell()

    def _gateways_changed(self, gateways: list[ControlRequest]) -> None:
        """Tell clients that ask what runs where."""
        http = [each.http_port for each in gateways if each.http_port != PORT_OFF]
        grpc = [each.grpc_port for each in gateways if each.grpc_port != PORT_OFF]
        self._node.announce("http", http, "the web API; its documentation is at /docs")
        self._node.announce("grpc", grpc, "gRPC; it describes itself by reflection")
