"""What a client and everything it makes have in common: where the brokers are, the seams, and how to ask them."""

from collections.abc import Awaitable, Callable, Sequence

from penstock.model.clock import Clock
from penstock.model.entropy import Entropy
from penstock.model.network import Network
from penstock.sdk.address import Address
from penstock.sdk.asking import Asking
from penstock.sdk.cluster import Cluster, ConnectionSettings
from penstock.sdk.idle import Idle
from penstock.sdk.life import Life


class Home:
    """One client's own; made without an event loop, used on one."""

    def __init__(
        self,
        seeds: Sequence[Address],
        *,
        network: Network,
        clock: Clock,
        entropy: Entropy,
        settings: ConnectionSettings,
    ) -> None:
        self.seeds = tuple(seeds)
        self.clock = clock
        self.settings = settings
        self._network = network
        self._entropy = entropy
        asking = self.asking()
        self.idle = Idle(asking, clock)
        self.times = self.idle.times
        self.life = Life("client", _closing(asking))

    def __str__(self) -> str:
        return ",".join(map(str, self.seeds))

    def asking(self) -> Asking:
        """Connections of its own for something that the client makes, none of them open yet."""
        return Asking(Cluster(self.seeds, self._network, self.settings), self._entropy)

    def adopt(self, name: str, asking: Asking, close: Callable[[], Awaitable[None]]) -> Life:
        """The life of something made: `close` is awaited when it or the client ends, then its connections go."""

        async def end() -> None:
            try:
                await close()
            finally:
                asking.cluster.close()

        return Life(name, end, self.life)


def _closing(asking: Asking) -> Callable[[], Awaitable[None]]:
    async def end() -> None:
        asking.cluster.close()

    return end
