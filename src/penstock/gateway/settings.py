"""What a gateway can be told at start: `http_port` is `--http-port`, `PENSTOCK_GATEWAY_HTTP_PORT`, and `http_port = …`
in a TOML file."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.process.settings import DURATION, GATEWAY_PREFIX, OPTIONAL_PORT, LogFormat, LogLevel, Table


class Settings(Struct, frozen=True, kw_only=True):
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
    control: Annotated[
        str, Meta(description="Control socket of the `penstock serve` that makes clusters; empty: none.")
    ] = ""
    log_level: Annotated[LogLevel, Meta(description="Least severity that is logged.")] = "info"
    log_format: Annotated[LogFormat, Meta(description="Log lines for people, or one JSON object a line.")] = "console"


TABLE = Table(Settings, GATEWAY_PREFIX)
