"""Defines the broker's settings.

The field `kafka_port` is `--kafka-port`, `MILLSTREAM_KAFKA_PORT`, or `kafka_port = …` in a TOML file.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from millstream.model.limits import PARTITIONS_PER_BROKER_MAX
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
    """All settings of a broker. Durations are in milliseconds and sizes in bytes; -1 means no limit."""

    data: Annotated[
        tuple[str, ...],
        Meta(description="Data directories, separated by commas (in TOML: a list). Partitions are spread over them."),
    ] = ("./millstream-data",)
    host: Annotated[str, Meta(description="Address to listen on. The default admits this machine only.")] = "127.0.0.1"
    advertised_host: Annotated[
        str,
        Meta(
            description="Host name that clients connect to. Default: the address to listen on; "
            "for 0.0.0.0, the machine's name."
        ),
    ] = ""
    kafka_port: Annotated[int, PORT, Meta(description="Port of the Kafka protocol (0: any free port).")] = 9092
    operator_port: Annotated[
        int, OPTIONAL_PORT, Meta(description="Port of /metrics, /health and /ready (0: any free port; off: disabled).")
    ] = 9644
    http_port: Annotated[
        int, OPTIONAL_PORT, Meta(description="Port of the gateway's web API (0: any free port; off: disabled).")
    ] = 8080
    grpc_port: Annotated[
        int, OPTIONAL_PORT, Meta(description="Port of the gateway's gRPC (0: any free port; off: disabled).")
    ] = 9095
    flush: Annotated[
        Literal["always", "interval", "os"],
        Meta(description="When writes are acknowledged: after a flush to disk (always), or before it (interval, os)."),
    ] = "always"
    flush_interval_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1, description="Time between flushes with flush=interval."),
    ] = 1_000
    retention_ms: Annotated[
        int,
        DURATION,
        Meta(ge=-1, description="Age at which messages expire, unless the topic sets retention.ms; none keeps them."),
    ] = 7 * 24 * HOUR_MS
    retention_bytes: Annotated[
        int, SIZE, Meta(ge=-1, description="Maximum size of a partition, unless the topic sets retention.bytes.")
    ] = -1
    segment_bytes: Annotated[
        int,
        SIZE,
        Meta(
            ge=16_384, le=2**31 - 1, description="Maximum size of a segment file, unless the topic sets segment.bytes."
        ),
    ] = 256 * 2**20
    segment_ms: Annotated[
        int,
        DURATION,
        Meta(
            ge=1_000,
            description="Age at which a segment file is closed, unless the topic sets segment.ms. "
            "Messages may expire this much later.",
        ),
    ] = 24 * HOUR_MS
    cleaner_interval_ms: Annotated[int, DURATION, Meta(ge=1, description="Time between two rounds of compaction.")] = (
        15_000
    )
    cleaner_bytes_per_s: Annotated[
        int, SIZE, Meta(ge=2**16, description="Maximum bytes that compaction reads and writes per second.")
    ] = 32 * 2**20
    cleaner_memory_bytes: Annotated[
        int,
        SIZE,
        Meta(ge=2**16, description="Maximum memory for keys while compaction runs: about 50,000 keys per MiB."),
    ] = 64 * 2**20
    auto_create: Annotated[bool, Meta(description="Create a missing topic when a client writes to it.")] = True
    default_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Partitions of a topic that is created without a number. "
            "One partition keeps the order of all messages.",
        ),
    ] = 1
    partitions_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Maximum number of partitions. Each takes memory and a directory.")
    ] = PARTITIONS_PER_BROKER_MAX
    validate_records: Annotated[
        bool, Meta(description="Refuse uncompressed batches whose records cannot be decoded.")
    ] = True
    offsets_partitions: Annotated[
        int, Meta(ge=1, le=1_000, description="Partitions of `__consumer_offsets`, which the first group creates.")
    ] = 16
    offsets_retention_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1, description="How long committed offsets are kept after they were last in use."),
    ] = 7 * 24 * HOUR_MS
    group_initial_rebalance_delay_ms: Annotated[
        int, DURATION, Meta(ge=0, description="How long an empty classic group waits for members after the first one.")
    ] = 100
    group_session_timeout_min_ms: Annotated[
        int, DURATION, Meta(ge=1, description="Minimum session timeout that a member of a classic group may request.")
    ] = 6_000
    group_session_timeout_max_ms: Annotated[
        int, DURATION, Meta(ge=1, description="Maximum session timeout that a member of a classic group may request.")
    ] = 1_800_000
    group_max_size: Annotated[int, Meta(ge=1, description="Maximum number of members in a group.")] = 10_000
    group_memory_bytes: Annotated[
        int, SIZE, Meta(ge=2**20, description="Maximum memory of the members of all groups: metadata and assignments.")
    ] = 128 * 2**20
    consumer_session_timeout_ms: Annotated[
        int, DURATION, Meta(ge=1, description="Session timeout of members with the consumer protocol (KIP-848).")
    ] = 45_000
    consumer_session_timeout_min_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1, description="Minimum session timeout that a group with the consumer protocol may set."),
    ] = 45_000
    consumer_session_timeout_max_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1, description="Maximum session timeout that a group with the consumer protocol may set."),
    ] = 60_000
    consumer_heartbeat_interval_ms: Annotated[
        int, DURATION, Meta(ge=1, description="Heartbeat interval of members with the consumer protocol (KIP-848).")
    ] = 5_000
    consumer_heartbeat_interval_min_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1, description="Minimum heartbeat interval that a group with the consumer protocol may set."),
    ] = 5_000
    consumer_heartbeat_interval_max_ms: Annotated[
        int,
        DURATION,
        Meta(ge=1, description="Maximum heartbeat interval that a group with the consumer protocol may set."),
    ] = 15_000
    consumer_assignment_interval_ms: Annotated[
        int,
        DURATION,
        Meta(ge=0, description="Minimum time between two assignments of a group with the consumer protocol (KIP-848)."),
    ] = 200
    iterator_in_flight_ms: Annotated[
        int,
        DURATION,
        Meta(
            ge=1_000, le=24 * HOUR_MS, description="How long an iterator is in flight if its client requests no time."
        ),
    ] = 30_000
    iterator_in_flight_max_ms: Annotated[
        int,
        DURATION,
        Meta(
            ge=1_000, le=24 * HOUR_MS, description="Maximum time in flight that a client may request for an iterator."
        ),
    ] = 600_000
    message_id_window_ms: Annotated[
        int, DURATION, Meta(ge=1_000, description="Minimum time for which the id of a stored message is remembered.")
    ] = 24 * HOUR_MS
    message_ids_max: Annotated[
        int,
        Meta(
            ge=100_000,
            description="Maximum number of remembered message ids; the oldest are removed first. "
            "Each takes about 30 bytes on disk.",
        ),
    ] = 10_000_000
    request_memory_bytes: Annotated[
        int, SIZE, Meta(ge=2**20, description="Maximum memory of requests in flight, over all connections.")
    ] = 512 * 2**20
    response_memory_bytes: Annotated[
        int,
        SIZE,
        Meta(ge=2**20, description="Maximum memory of responses that clients have not read, over all connections."),
    ] = 256 * 2**20
    query_memory_bytes: Annotated[
        int, SIZE, Meta(ge=64 * 2**20, description="Maximum memory of the process that runs SQL queries.")
    ] = 256 * 2**20
    disk_reserve_bytes: Annotated[
        int,
        SIZE,
        Meta(
            ge=0,
            description="Space reserved in each data directory for deletions on a full disk. Up to 16MiB, it is at "
            "most 2 % of the volume.",
        ),
    ] = 16 * 2**20
    disk_low_bytes: Annotated[
        int,
        SIZE,
        Meta(
            ge=0,
            description="Free space below which /health reports degraded. Up to 1GiB, it is at most 5 % of the volume.",
        ),
    ] = 2**30
    node_id: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Id of this broker.")] = 1
    log_level: Annotated[LogLevel, Meta(description="Lowest severity that is logged.")] = "info"
    log_format: Annotated[LogFormat, Meta(description="Log lines for people, or one JSON object per line.")] = "console"


TABLE = SettingsTable(BrokerSettings, ENVIRONMENT_PREFIX, not_settings=CLIENT_VARIABLES, not_prefix=GATEWAY_PREFIX)
FIELDS = TABLE.fields
load = TABLE.load
