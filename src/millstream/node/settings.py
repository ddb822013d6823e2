"""Broker settings: `kafka_port` is `--kafka-port`, `MILLSTREAM_KAFKA_PORT`, or `kafka_port = …` in a TOML file."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from millstream.process.settings import (
    CLIENT_VARIABLES,
    DURATION,
    ENVIRONMENT_PREFIX,
    GATEWAY_PREFIX,
    OPTIONAL_PORT,
    PORT,
    SIZE,
    LogFormat,
    LogLevel,
    SettingsTable,
)

HOUR_MS = 3_600_000


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a broker can be told. Durations are in milliseconds, sizes in bytes, -1 is no limit."""

    data: Annotated[tuple[str, ...], Meta(description="Directory for the data; several are separated by commas.")] = (
        "./millstream-data",
    )
    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    advertised_host: Annotated[
        str, Meta(description="Name under which clients reach this broker; empty: the address it listens on.")
    ] = ""
    kafka_port: Annotated[int, PORT, Meta(description="Port of the Kafka protocol; 0: any that is free.")] = 9092
    operator_port: Annotated[
        int, OPTIONAL_PORT, Meta(description="Port of /metrics, /health and /ready; 0: any that is free, off: none.")
    ] = 9644
    http_port: Annotated[
        int, OPTIONAL_PORT, Meta(description="Port of the gateway's web API; 0: any that is free, off: none.")
    ] = 8080
    grpc_port: Annotated[
        int, OPTIONAL_PORT, Meta(description="Port of the gateway's gRPC; 0: any that is free, off: none.")
    ] = 9095
    flush: Annotated[
        Literal["always", "interval", "os"],
        Meta(description="When an acknowledgement may leave: after a flush to disk, or before one."),
    ] = "always"
    flush_interval_ms: Annotated[
        int, DURATION, Meta(ge=1, description="How often flush=interval flushes: the most a power loss can take.")
    ] = 1_000
    retention_ms: Annotated[
        int, DURATION, Meta(ge=-1, description="Age at which messages are removed, unless their topic says otherwise.")
    ] = 7 * 24 * HOUR_MS
    retention_bytes: Annotated[
        int, SIZE, Meta(ge=-1, description="Size a partition is kept to, unless its topic says otherwise.")
    ] = -1
    segment_bytes: Annotated[
        int, SIZE, Meta(ge=16_384, le=2**31 - 1, description="Size at which a partition begins a new file.")
    ] = 256 * 2**20
    segment_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1_000, description="Age at which a partition begins a new file; expiry may be so late."),
    ] = 24 * HOUR_MS
    cleaner_interval_ms: Annotated[
        int, DURATION, Meta(ge=1, description="How often compaction looks for something to do.")
    ] = 15_000
    cleaner_bytes_per_s: Annotated[
        int, SIZE, Meta(ge=2**16, description="Most that compaction reads and writes in a second.")
    ] = 32 * 2**20
    cleaner_memory_bytes: Annotated[
        int, SIZE, Meta(ge=2**16, description="Memory that compaction may take for keys, while it runs.")
    ] = 64 * 2**20
    auto_create: Annotated[bool, Meta(description="Writing to a topic that is not there makes it.")] = True
    default_partitions: Annotated[
        int, Meta(ge=1, le=10_000, description="Partitions of a topic made without saying how many.")
    ] = 1
    offsets_partitions: Annotated[
        int, Meta(ge=1, le=1_000, description="Partitions of __consumer_offsets, when the first group makes it.")
    ] = 16
    offsets_retention_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1, description="How long offsets are kept that a group has committed and nobody needs any more."),
    ] = 7 * 24 * HOUR_MS
    group_initial_rebalance_delay_ms: Annotated[
        int, DURATION, Meta(ge=0, description="How long an empty classic group waits for more than its first member.")
    ] = 100
    group_session_timeout_min_ms: Annotated[
        int, DURATION, Meta(ge=1, description="Shortest session timeout that a member of a classic group may ask for.")
    ] = 6_000
    group_session_timeout_max_ms: Annotated[
        int, DURATION, Meta(ge=1, description="Longest session timeout that a member of a classic group may ask for.")
    ] = 1_800_000
    group_max_size: Annotated[int, Meta(ge=1, description="Members that a group may have.")] = 10_000
    consumer_session_timeout_ms: Annotated[
        int, DURATION, Meta(ge=1, description="After such silence a member of the new group protocol is gone.")
    ] = 45_000
    consumer_heartbeat_interval_ms: Annotated[
        int, DURATION, Meta(ge=1, description="How often members of the new group protocol are to be heard of.")
    ] = 5_000
    consumer_assignment_interval_ms: Annotated[
        int, DURATION, Meta(ge=0, description="Least time between two assignments of a group of the new protocol.")
    ] = 1_000
    iterator_in_flight_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1_000, le=24 * HOUR_MS, description="How long an iterator is in flight whose client does not say."),
    ] = 30_000
    iterator_in_flight_max_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1_000, le=24 * HOUR_MS, description="Longest time in flight that a client of iterators may ask for."),
    ] = 600_000
    message_id_window_ms: Annotated[
        int, DURATION, Meta(ge=1_000, description="How long the id of a stored message is known, at least.")
    ] = 24 * HOUR_MS
    message_ids_max: Annotated[
        int, Meta(ge=100_000, description="Message ids that are known, all partitions together; the oldest go first.")
    ] = 10_000_000
    request_memory_bytes: Annotated[
        int, SIZE, Meta(ge=2**20, description="Most that requests under way may hold, all connections together.")
    ] = 512 * 2**20
    answer_memory_bytes: Annotated[
        int,
        SIZE,
        Meta(ge=2**20, description="Most that answers not taken by slow readers may hold, all together."),
    ] = 256 * 2**20
    node_id: Annotated[int, Meta(ge=0, le=2**31 - 1, description="This broker's number.")] = 1
    log_level: Annotated[LogLevel, Meta(description="Least severity that is logged.")] = "info"
    log_format: Annotated[LogFormat, Meta(description="Log lines for people, or one JSON object a line.")] = "console"


TABLE = SettingsTable(BrokerSettings, ENVIRONMENT_PREFIX, not_settings=CLIENT_VARIABLES, not_prefix=GATEWAY_PREFIX)
FIELDS = TABLE.fields
load = TABLE.load
