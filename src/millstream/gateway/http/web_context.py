"""Holds the objects that all routes of the web API share."""

from dataclasses import dataclass

from millstream.gateway.budget import Budget
from millstream.gateway.draining import Draining
from millstream.gateway.operations.cluster_create import ClusterCreator, NoSupervisor
from millstream.gateway.operations.clusters import ServedClusters
from millstream.gateway.traffic import Traffic
from millstream.model.authorization import ALLOW_ALL, Authorizer
from millstream.seams.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class WebLimits:
    """Limits of one request, and the web sites whose pages may send requests."""

    body_bytes: int = 16 * 1024 * 1024
    """Largest body after decompression."""
    events: int = 10_000
    """Most events in one request."""
    origins: tuple[str, ...] = ()
    """Other web sites whose pages may send requests; `*` allows all."""


class WebContext:
    """The clusters, limits, authorizer and counters of one gateway's web API."""

    def __init__(
        self,
        clusters: ServedClusters,
        *,
        limits: WebLimits | None = None,
        authorizer: Authorizer = ALLOW_ALL,
        maker: ClusterCreator | None = None,
        draining: Draining | None = None,
        clock: Clock | None = None,
        budget: Budget | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.clusters = clusters
        self.limits = limits or WebLimits()
        self.authorizer = authorizer
        self.maker = maker or NoSupervisor()
        self.clock = clock or SystemClock()
        self.budget = budget or Budget()
        self.traffic = traffic or Traffic("http")
        self.draining = draining or Draining()
