"""What all routes of the web API share: the clusters, the limits, who may what, and what is held at the moment."""

from dataclasses import dataclass

from penstock.gateway.clusters import Clusters
from penstock.gateway.draining import Draining
from penstock.gateway.making import ClusterMaker, NoMaker
from penstock.gateway.rights import ANYBODY, Guard
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import ErrorCode, PenstockError


@dataclass(frozen=True, slots=True)
class WebLimits:
    """What one request, and all of them together, may take."""

    body_bytes: int = 16 * 1024 * 1024
    """Largest body, unpacked if it came compressed."""
    held_bytes: int = 256 * 1024 * 1024
    """Bodies and answers of all requests under way."""
    events: int = 10_000
    """Most events in one request."""
    origins: tuple[str, ...] = ()
    """Web sites whose pages may ask, beside the gateway's own; `*` for all."""


class Budget:
    """Bytes that all requests under way hold together."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0

    def take(self, size_bytes: int) -> None:
        """GATEWAY_FULL, taking nothing, when that is more than is left; whoever holds nothing is always let in."""
        if self.held_bytes and self.held_bytes + size_bytes > self.most_bytes:
            text = f"requests under way hold {self.held_bytes} of {self.most_bytes} bytes; try again in a moment"
            raise PenstockError(ErrorCode.GATEWAY_FULL, text)
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes


class Site:
    """One gateway's web API."""

    def __init__(
        self,
        clusters: Clusters,
        *,
        limits: WebLimits | None = None,
        guard: Guard = ANYBODY,
        maker: ClusterMaker | None = None,
        draining: Draining | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clusters = clusters
        self.limits = limits or WebLimits()
        self.guard = guard
        self.maker = maker or NoMaker()
        self.clock = clock or SystemClock()
        self.budget = Budget(self.limits.held_bytes)
        self.draining = draining or Draining()
