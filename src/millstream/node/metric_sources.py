"""Yields the metrics of the broker's components, one source per component.

Each component keeps its own figures. A source reads them when Prometheus scrapes, and stores nothing. `metric_sources`
lists the sources; a new component adds its own there.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from millstream.broker.dispatch.api_stats import api_metrics
from millstream.broker.net.listener import Listener
from millstream.groups.runtime.coordinator import GroupCoordinator
from millstream.node.data_metrics import (
    busy_partition_metrics,
    directory_metrics,
    disk_metrics,
    hot_partition_metrics,
    lag_metrics,
    topic_metrics,
)
from millstream.node.partition_census import PartitionCensus
from millstream.partition.served.partitions import Partitions
from millstream.process.metrics import Metric, Source, counter, gauge, histogram


def metric_sources(partitions: Partitions, groups: GroupCoordinator, listener: Listener) -> Sequence[Source]:
    """Returns the sources of all components, in the order of the page."""
    return [
        partial(listener_metrics, listener),
        partial(api_metrics, listener.shared.table.stats.values()),
        partial(catalog_metrics, partitions),
        partial(group_metrics, groups),
        partial(topic_metrics, partitions.figures),
        partial(busy_partition_metrics, partitions.busy),
        partial(hot_partition_metrics, partitions.busy),
        partial(lag_metrics, groups),
        partial(disk_metrics, partitions.store),
        partial(directory_metrics, partitions.store.reserves),
    ]


def listener_metrics(listener: Listener) -> Iterable[Metric]:
    """Yields the metrics of the connections and the memory of their requests."""
    counters, memory = listener.counters, listener.memory
    yield gauge("millstream_connections", "Open connections.", listener.connection_count)
    yield counter("millstream_connections_accepted_total", "Connections accepted.", counters.connections_accepted)
    yield counter("millstream_connections_cut_total", "Connections that the broker cut off.", counters.connections_cut)
    yield counter(
        "millstream_connections_refused_total",
        "Connections refused because too few file descriptors are left.",
        counters.connections_refused,
    )
    yield Metric(
        "millstream_connections_closed_total",
        "counter",
        "Ended connections by reason.",
        [({"reason": reason.value}, count) for reason, count in counters.closed.items()],
    )
    yield counter("millstream_requests_total", "Requests received.", counters.requests)
    yield histogram("millstream_event_loop_lag_seconds", "Lateness of a timer of the event loop.", listener.lag)
    yield gauge("millstream_request_memory_bytes", "Memory held by requests in flight.", memory.incoming_bytes)
    yield gauge("millstream_request_memory_limit_bytes", "Maximum of request memory.", memory.incoming_bytes_max)
    yield gauge("millstream_requests_waiting_for_memory", "Requests that wait for memory.", memory.waiting_frames)
    yield gauge("millstream_response_memory_bytes", "Memory held by unread responses.", memory.outgoing_bytes)
    yield gauge("millstream_response_memory_limit_bytes", "Maximum of response memory.", memory.outgoing_bytes_max)


def catalog_metrics(partitions: Partitions) -> Iterable[Metric]:
    """Yields the number of topics, and of the message ids and producers in memory."""
    yield gauge("millstream_topics", "Topics.", len(partitions.image.names))
    budgets = partitions.budgets
    yield gauge("millstream_message_ids", "Message ids remembered.", budgets.ids.known)
    yield gauge("millstream_producers", "Idempotent producers remembered.", budgets.producers.known)


def group_metrics(groups: GroupCoordinator) -> Iterable[Metric]:
    """Yields the metrics of the group coordinator."""
    figures = groups.figures()
    yield gauge("millstream_groups", "Consumer groups.", figures.groups)
    yield gauge("millstream_group_members", "Members of all groups.", figures.members)
    yield gauge(
        "millstream_group_memory_bytes", "Memory of the members' metadata and assignments.", figures.member_bytes
    )
    yield gauge("millstream_group_partitions_loading", "Group log partitions not loaded yet.", figures.loading)
    yield counter("millstream_group_rebalances_total", "New generations and epochs of groups.", figures.rebalances)
    yield counter("millstream_group_offsets_committed_total", "Offsets committed.", figures.offsets_committed)


def child_metrics(states: Mapping[str, bool]) -> Iterable[Metric]:
    """Yields a sample for each process that runs beside the broker."""
    samples = [({"child": name}, int(is_up)) for name, is_up in states.items()]
    yield Metric("millstream_child_up", "gauge", "1 while a child process serves clients.", samples)


def partition_metrics(census: PartitionCensus) -> Iterable[Metric]:
    """Yields the figures of all partitions."""
    yield gauge("millstream_partitions", "Partitions served.", census.replicas)
    yield gauge(
        "millstream_partitions_refusing_writes",
        "Partitions that refuse writes, or did recently.",
        len(census.refusing),
    )
    yield gauge(
        "millstream_partitions_truncated",
        "Partitions that may have lost acknowledged messages at this start.",
        len(census.truncated),
    )
    yield gauge(
        "millstream_partitions_rebuilding_message_ids",
        "Partitions whose message ids are lost or damaged in part.",
        len(census.lacking_ids),
    )
    yield gauge("millstream_log_bytes", "Size of all logs.", census.log_bytes)
    yield gauge("millstream_log_messages", "Offsets in all logs.", census.log_messages)
