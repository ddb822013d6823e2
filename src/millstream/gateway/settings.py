"""The gateway's settings: `http_port` is `--http-port`, `MILLSTREAM_GATEWAY_HTTP_PORT`, or `http_port = …` in TOML."""

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
    """Everything a gateway can be told. Durations are in milliseconds, sizes in bytes."""

    bootstrap: Annotated[
        tuple[str, ...], Meta(description="Brokers of the cluster `default` to ask first; any one is enough.")
    ] = ("127.0.0.1:9092",)
    cluster: Annotated[
        dict[str, str], Meta(description="A further cluster as name=host:port,host:port; may be said several times.")
    ] = {}
    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    http_port: Annotated[
        int, OPTIONAL_PORT, Meta(description="Port of the web API; 0: any that is free, off: none.")
    ] = 8080
    grpc_port: Annotated[int, OPTIONAL_PORT, Meta(description="Port of gRPC; 0: any that is free, off: none.")] = 9095
    drain_ms: Annotated[
        int, DURATION, Meta(ge=0, description="How long requests under way may take when the gateway is stopped.")
    ] = 5_000
    notice_ms: Annotated[
        int,
        DURATION,
        Meta(ge=0, description="How long /ready says no before connections are refused, for load balancers to see."),
    ] = 0
    request_timeout_ms: Annotated[
        int, DURATION, Meta(ge=100, le=600_000, description="By when brokers must have done what a request needs.")
    ] = 10_000
    body_bytes_max: Annotated[
        int, SIZE, Meta(ge=1024, le=2**30, description="Largest body of a request, unpacked if it came compressed.")
    ] = 16 * 2**20
    held_bytes_max: Annotated[
        int, SIZE, Meta(ge=2**20, description="Most that requests under way may hold, all together.")
    ] = 256 * 2**20
    events_max: Annotated[int, Meta(ge=1, le=1_000_000, description="Most events in one request.")] = 10_000
    connections_max: Annotated[int, Meta(ge=1, description="HTTP connections that may be open.")] = 20_000
    head_ms: Annotated[
        int, DURATION, Meta(ge=1, description="How long the head of an HTTP request may take to come.")
    ] = 10_000
    body_ms: Annotated[
        int, DURATION, Meta(ge=1, description="How long the body of an HTTP request may take to come.")
    ] = 60_000
    take_ms: Annotated[
        int, DURATION, Meta(ge=1, description="How long an HTTP answer may lie there that its reader does not take.")
    ] = 30_000
    cors_origins: Annotated[
        tuple[str, ...],
        Meta(description="Web sites whose pages may ask, such as https://example.org; `*`: all."),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(description="Names under which it may be asked over HTTP, beside localhost and its address; `*`: any."),
    ] = ()
    control: Annotated[
        str, Meta(description="Control socket of the `millstream serve` that makes clusters; empty: none.")
    ] = ""
    log_level: Annotated[LogLevel, Meta(description="Least severity that is logged.")] = "info"
    log_format: Annotated[LogFormat, Meta(description="Log lines for people, or one JSON object a line.")] = "console"


TABLE = SettingsTable(GatewaySettings, GATEWAY_PREFIX)
