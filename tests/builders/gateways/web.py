"""Provides a gateway's clusters and web API over a broker in simulated time."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from builders.simulated_node import HOST, SimulatedMachine, simulate
from millstream.gateway.budget import Budget, ReadBudget
from millstream.gateway.http.app import make_app
from millstream.gateway.http.web_context import WebContext, WebLimits
from millstream.gateway.operations.clusters import DEFAULT, ClientFactory, ClusterMember, ServedCluster, ServedClusters
from millstream.node.node import Node
from millstream.node.settings import BrokerSettings


@dataclass
class Ground:
    """A broker, and the clusters of a gateway that serves only this broker."""

    machine: SimulatedMachine
    node: Node
    clusters: ServedClusters

    @property
    def cluster(self) -> ServedCluster:
        return self.clusters.get()

    @property
    def member(self) -> ClusterMember:
        return self.cluster.members[0]

    async def restart(self, pause: Callable[[], Awaitable[None]]) -> None:
        """Stop the broker, await `pause`, and start it again on the same data."""
        await self.node.stop()
        await pause()
        self.node = await self.machine.start()


def with_clusters(
    story: Callable[[Ground], Awaitable[None]],
    settings: BrokerSettings | None = None,
    budget: Budget | None = None,
) -> None:
    """Run a story with a broker and the clusters of a gateway, whose reads count into the budget."""

    async def whole(machine: SimulatedMachine) -> None:
        network = machine.network.host("gateway")
        memory = None if budget is None else ReadBudget(budget)
        connecting = ClientFactory(
            network=network,
            clock=machine.clock,
            entropy=machine.entropy,
            workers=machine.new_workers(),
            memory=memory,
        )
        ground = Ground(machine, await machine.start(), ServedClusters({DEFAULT: [f"{HOST}:9092"]}, connecting))
        try:
            await story(ground)
        finally:
            await ground.clusters.close()
            await ground.node.stop()

    simulate(settings or BrokerSettings(data=("/data",), host=HOST, operator_port=-1), whole)


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> tuple[int, str, str | None]:
        """Return status, code and field of a problem response."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return self.status, self.json["code"], self.json.get("field")


class Web:
    """Sends requests to a web API without a socket."""

    def __init__(self, site: WebContext, machine: SimulatedMachine | None = None) -> None:
        self.site = site
        self._machine = machine
        self.parts_read = 0
        """The number of body parts that the web API has read."""
        self._app = make_app(site)

    async def produce(self, topic: str, *batches: bytes) -> None:
        """Write encoded batches to partition 0 of a topic, without the gateway."""
        assert self._machine is not None
        writer = await self._machine.client("writer")
        for batch in batches:
            await writer.produce(topic, 0, batch)
        writer.close()

    async def ask(self, method: str, target: str, body: Any = None, pieces: int = 1, **headers: str) -> Answered:
        """Send a request and return its response.

        A body that is not bytes is encoded as JSON; it is sent in `pieces` parts. A header value of several lines is
        sent as several headers.
        """
        sent: list[MutableMapping[str, Any]] = []
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            fields = {"content-length": str(len(data)), "content-type": "application/json", **fields}
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [
                (name.lower().encode(), line.encode()) for name, value in fields.items() for line in value.split("\n")
            ],
            "client": ("127.0.0.1", 1),
        }
        size = -(-len(data) // pieces) or 1
        parts = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
        incoming = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        incoming[-1]["more_body"] = False

        async def receive() -> MutableMapping[str, Any]:
            self.parts_read += 1
            return incoming.pop(0) if incoming else {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answered(sent[0]["status"], found, b"".join(each.get("body", b"") for each in sent[1:]))


def with_web(
    story: Callable[[Web], Awaitable[None]],
    limits: WebLimits | None = None,
    settings: BrokerSettings | None = None,
    budget: Budget | None = None,
) -> None:
    """Run a story with a web API over a broker."""

    async def whole(ground: Ground) -> None:
        site = WebContext(ground.clusters, limits=limits, clock=ground.machine.clock, budget=budget)
        await story(Web(site, ground.machine))

    with_clusters(whole, settings, budget)
