"""Defines the gateway's settings.

The setting `http_port` is `--http-port` on the command line, `MILLSTREAM_GATEWAY_HTTP_PORT` in the environment and
`http_port = …` in a TOML file.
"""

from typing import Annotated

from msgspec import Meta, Struct

from millstream.process.settings import (
    DURATION,
    GATEWAY_PREFIX,
    OPTIONAL_PORT,
    SIZE,
    LogFormat,
    LogLevel,
    SettingsTable,
)


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """The settings of a gateway. Durations are in milliseconds, sizes in bytes."""

    bootstrap: Annotated[
        tuple[str, ...], Meta(description="Bootstrap addresses of the cluster `default`; one broker is enough.")
    ] = ("127.0.0.1:9092",)
    cluster: Annotated[
        dict[str, str],
        Meta(
            description="A further cluster, as name=host:port,host:port. Repeat the flag for more; "
            "semicolons separate them in the variable."
        ),
    ] = {}
    host: Annotated[str, Meta(description="Address to listen on. The default admits this machine only.")] = "127.0.0.1"
    http_port: Annotated[
        int, OPTIONAL_PORT, Meta(description="Port of the web API; 0: any free port, off: no web API.")
    ] = 8080
    grpc_port: Annotated[int, OPTIONAL_PORT, Meta(description="Port of gRPC; 0: any free port, off: no gRPC.")] = 9095
    drain_ms: Annotated[
        int, DURATION, Meta(ge=0, description="How long requests in progress may take to finish at shutdown.")
    ] = 5_000
    notice_ms: Annotated[
        int,
        DURATION,
        Meta(ge=0, description="Time between /ready failing and refusing connections, for load balancers."),
    ] = 0
    request_timeout_ms: Annotated[
        int, DURATION, Meta(ge=100, le=600_000, description="Timeout of requests to brokers.")
    ] = 10_000
    body_bytes_max: Annotated[
        int, SIZE, Meta(ge=1024, le=2**30, description="Largest request body, after decompression.")
    ] = 16 * 2**20
    held_bytes_max: Annotated[
        int,
        SIZE,
        Meta(
            ge=2**20,
            description="Memory limit of all requests in progress: bodies, messages read, and responses. "
            "Above it, requests are refused.",
        ),
    ] = 256 * 2**20
    events_max: Annotated[int, Meta(ge=1, le=1_000_000, description="Most events in one request.")] = 10_000
    connections_max: Annotated[int, Meta(ge=1, description="Most open HTTP connections.")] = 20_000
    head_ms: Annotated[int, DURATION, Meta(ge=1, description="Timeout for receiving the head of an HTTP request.")] = (
        10_000
    )
    body_ms: Annotated[int, DURATION, Meta(ge=1, description="Timeout for receiving the body of an HTTP request.")] = (
        60_000
    )
    take_ms: Annotated[int, DURATION, Meta(ge=1, description="Time for a client to read an HTTP response.")] = 30_000
    cors_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Web sites whose pages may send requests, such as https://example.org, "
            "separated by commas; `*`: all."
        ),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Accepted Host names of HTTP requests, besides localhost and `host`, "
            "separated by commas; `*`: any."
        ),
    ] = ()
    control: Annotated[
        str, Meta(description="Control socket of the `millstream serve` that creates clusters; empty: none.")
    ] = ""
    log_level: Annotated[LogLevel, Meta(description="Lowest severity that is logged.")] = "info"
    log_format: Annotated[LogFormat, Meta(description="Log format: for people, or one JSON object per line.")] = (
        "console"
    )


TABLE = SettingsTable(GatewaySettings, GATEWAY_PREFIX)
