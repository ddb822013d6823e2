"""What all routes of the web API share: the clusters, the limits, who may what, and what is held at the moment."""

from dataclasses import dataclass

from millstream.gateway.budget import Budget
from millstream.gateway.draining import Draining
from millstream.gateway.operations.cluster_create import ClusterCreator, NoSupervisor
from millstream.gateway.operations.clusters import ServedClusters
from millstream.gateway.rights import ANYBODY, RightsGuard
from millstream.gateway.traffic import Traffic
from millstream.seams.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class WebLimits:
    """What one request may take, and whose pages may ask."""

    body_bytes: int = 16 * 1024 * 1024
    """Largest body, unpacked if it came compressed."""
    events: int = 10_000
    """Most events in one request."""
    origins: tuple[str, ...] = ()
    """Web sites whose pages may ask, beside the gateway's own; `*` for all."""


class WebContext:
    """One gateway's web API."""

    def __init__(
        self,
        clusters: ServedClusters,
        *,
        limits: WebLimits | None = None,
        guard: RightsGuard = ANYBODY,
        maker: ClusterCreator | None = None,
        draining: Draining | None = None,
        clock: Clock | None = None,
        budget: Budget | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.clusters = clusters
        self.limits = limits or WebLimits()
        self.guard = guard
        self.maker = maker or NoSupervisor()
        self.clock = clock or SystemClock()
        self.budget = budget or Budget()
        self.traffic = traffic or Traffic("http")
        self.draining = draining or Draining()
