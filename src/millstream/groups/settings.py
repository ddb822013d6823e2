"""What an operator can say about groups."""

from msgspec import Struct

DAY_MS = 24 * 3600 * 1000


class GroupSettings(Struct, frozen=True):
    """Kafka's names and defaults, unless a line says otherwise."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 100
    """How long a group that was empty waits for more members: Kafka waits 3 s, which nobody likes on a laptop."""
    members_max: int = 10_000
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * DAY_MS
    offsets_partitions: int = 16
    """Partitions of `__consumer_offsets` when it is made."""
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    """How long a group of the new protocol waits before it shares out again; 0 not at all."""
    iterator_in_flight_ms: int = 30_000
    """How long an iterator is in flight whose client does not say how long. Our own, as is the next."""
    iterator_in_flight_max_ms: int = 600_000
