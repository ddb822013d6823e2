"""Collects what is wrong with one broker and the processes beside it, as sentences that name the partition or process.

A problem degrades the health. A warning does not. Some problems of child processes also make the broker not ready. Each
kind of problem names at most NAMES_MAX partitions, so that the pages stay small with many partitions.

The partitions with a problem come from a census (see `partition_census`). Components report other findings as sources.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from millstream.node.partition_census import REFUSED_LATELY_S, PartitionCensus
from millstream.partition.leadership import Leadership
from millstream.partition.replica import Replica
from millstream.process.findings import Finding, OpenPort, exposed, exposure_warnings
from millstream.storage.disk_reserve import DiskReserve

log = logging.getLogger(__name__)

NAMES_MAX = 10

FindingSource = Callable[[], Iterable[Finding]]


ChildStates = Callable[[], Mapping[str, bool]]
"""Returns the names of the child processes, with True for those that serve clients."""


def no_findings() -> Iterable[Finding]:
    return ()


def no_children() -> Mapping[str, bool]:
    return {}


class BrokerHealth:
    """Computes the findings on each request. `children` reports those of the child processes.

    `sources` report the findings of further components of the broker.
    """

    def __init__(
        self,
        reserves: Sequence[DiskReserve] = (),
        children: FindingSource = no_findings,
        sources: Sequence[FindingSource] = (),
    ) -> None:
        self._open_ports: Sequence[OpenPort] = ()
        self._reserves = reserves
        self._children = children
        self._sources = sources

    def opened(self, ports: Sequence[OpenPort]) -> None:
        """Takes the broker's open ports, and logs those that other hosts can reach."""
        self._open_ports = ports
        for port in exposed(ports):
            fields = {"listener": port.name, "host": port.host, "port": port.port}
            log.warning("listener reachable from other hosts without authentication", extra=fields)

    def findings(self, census: PartitionCensus) -> list[Finding]:
        """Returns all problems and warnings."""
        return [
            *_partition_problems(census),
            *(Finding(text) for text in map(_directory_problem, self._reserves) if text),
            *(finding for source in self._sources for finding in source()),
            *exposure_warnings(self._open_ports),
            *self._children(),
        ]

    def reasons_not_ready(self) -> list[str]:
        """Returns the problems of child processes that make the whole process not ready."""
        return [finding.text for finding in self._children() if finding.blocks_ready]


def _partition_problems(census: PartitionCensus) -> Iterator[Finding]:
    texts = (f"partition {_name(each)} refuses writes: {_refusal(each)}" for each in census.refusing)
    yield from _bounded(texts, len(census.refusing), "refuse writes")
    texts = (
        f"partition {_replica_name(each)} may have lost acknowledged messages at this start: it was truncated or"
        " lost its end mark; compare its end and its .cut file with the source of the data"
        for each in census.truncated
    )
    yield from _bounded(texts, len(census.truncated), "may have lost acknowledged messages at this start")
    texts = (
        f"partition {_replica_name(each)} is rebuilding its message ids from the log" for each in census.lacking_ids
    )
    yield from _bounded(texts, len(census.lacking_ids), "are rebuilding their message ids")
    texts = (
        f"partition {_replica_name(each)} has lost up to {each.ids_lost} message ids since the start;"
        " messages that are sent again with these ids are stored twice"
        for each in census.lost_ids
    )
    yield from _bounded(texts, len(census.lost_ids), "have lost message ids")


def directory_status(reserve: DiskReserve) -> str:
    return "full, writes refused" if reserve.is_released else "low on space" if reserve.is_low else "ok"


def _bounded(texts: Iterator[str], count: int, what: str) -> Iterator[Finding]:
    """Yields the first NAMES_MAX texts, and the number of the others."""
    for _, text in zip(range(NAMES_MAX), texts, strict=False):
        yield Finding(text)
    if count > NAMES_MAX:
        yield Finding(f"{count - NAMES_MAX} further partitions {what}; the log names them")


def _refusal(partition: Leadership) -> str:
    health = partition.log.health
    if health.quarantined is not None:
        return f"it is quarantined: {health.quarantined}"
    if health.broken is not None:
        return f"the last write or flush failed: {health.broken}"
    if partition.is_suspended:
        return "its state is being rebuilt from the log"
    return f"a write failed in the last {REFUSED_LATELY_S:.0f} s; the log has the reason"


def _directory_problem(reserve: DiskReserve) -> str:
    status, space = directory_status(reserve), reserve.space
    if status == "ok":
        return ""
    free = "" if space is None else f" ({space.free_bytes} of {space.total_bytes} bytes are free)"
    return f"data directory {reserve.directory} is {status}{free}; delete topics, shorten retention or add space"


def _name(partition: Leadership) -> str:
    return f"{partition.topic}-{partition.number}"


def _replica_name(replica: Replica) -> str:
    return f"{replica.topic}-{replica.key.partition}"
