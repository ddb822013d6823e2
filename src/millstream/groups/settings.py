"""Defines the broker settings of groups."""

from msgspec import Struct

from millstream.groups.member_memory import MEMORY_BYTES

DAY_MS = 24 * 3600 * 1000


class GroupSettings(Struct, frozen=True):
    """Names and defaults are Kafka's unless a field says otherwise."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 100
    """How long a group that was empty waits for more members. Kafka waits 3 s, which is too long for local
    development."""
    members_max: int = 10_000
    memory_bytes: int = MEMORY_BYTES
    """Maximum memory of the metadata and assignments of all members on the broker. Kafka has no such setting."""
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * DAY_MS
    offsets_partitions: int = 16
    """Number of partitions with which `__consumer_offsets` is created."""
    consumer_session_timeout_ms: int = 45_000
    consumer_session_timeout_min_ms: int = 45_000
    consumer_session_timeout_max_ms: int = 60_000
    """The range of the session timeout that a single group may set."""
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_heartbeat_interval_min_ms: int = 5_000
    consumer_heartbeat_interval_max_ms: int = 15_000
    """The range of the heartbeat interval that a single group may set."""
    consumer_assignment_interval_ms: int = 200
    """Minimum time between two assignments of a group with the consumer protocol (KIP-848); 0 disables the delay."""
    iterator_in_flight_ms: int = 30_000
    """Time in flight of an iterator whose client requests no specific time. Kafka has neither this setting nor the
    next."""
    iterator_in_flight_max_ms: int = 600_000
