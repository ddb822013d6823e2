"""What a gateway works with, over a broker in simulated time."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from builders.simulated_node import HOST, SimulatedMachine, simulate
from penstock.gateway.clusters import DEFAULT, Cluster, Clusters, Connecting, Member
from penstock.node.node import Node
from penstock.node.settings import Settings


@dataclass
class Ground:
    """A broker, and the clusters of a gateway whose only one it is."""

    machine: SimulatedMachine
    node: Node
    clusters: Clusters

    @property
    def cluster(self) -> Cluster:
        return self.clusters.get()

    @property
    def member(self) -> Member:
        return self.cluster.members[0]

    async def restart(self, pause: Callable[[], Awaitable[None]]) -> None:
        """Stop the broker, do something, and start it on the same data."""
        await self.node.stop()
        await pause()
        self.node = await self.machine.start()


def with_clusters(story: Callable[[Ground], Awaitable[None]], settings: Settings | None = None) -> None:
    """Run a story to its end."""

    async def whole(machine: SimulatedMachine) -> None:
        network = machine.network.host("gateway")
        connecting = Connecting(network=network, clock=machine.clock, entropy=machine.entropy)
        ground = Ground(machine, await machine.start(), Clusters({DEFAULT: [f"{HOST}:9092"]}, connecting))
        try:
            await story(ground)
        finally:
            await ground.clusters.close()
            await ground.node.stop()

    simulate(settings or Settings(data=("/data",), host=HOST, operator_port=-1), whole)
