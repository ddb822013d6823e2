"""`millstream gateway`: the web API and gRPC over brokers that run elsewhere, in this process."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.cli.process_flags import ProcessFlags
from millstream.gateway.settings import TABLE, GatewaySettings
from millstream.process.exit_codes import EXIT_NOT_INSTALLED

if TYPE_CHECKING:
    import typer

_HELP = """Start a gateway: the web API and gRPC.

It keeps nothing, so any number of them may serve the same brokers behind a load balancer. A setting is taken from its
flag, else from the environment (--http-port is MILLSTREAM_GATEWAY_HTTP_PORT), else from the TOML file (http_port =
8080), else it has its default.
"""
_NEEDED = ("grpc", "httptools", "starlette", "uvicorn")
_FLAGS = ProcessFlags(TABLE)


def run(settings: GatewaySettings) -> int:
    """Run a gateway until a signal ends it, and tell the exit code."""
    from importlib.util import find_spec

    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"millstream: the web API and gRPC are not installed ({', '.join(missing)});"
            " get them with: pip install 'millstream[gateway]'\n"
        )
        return EXIT_NOT_INSTALLED
    from millstream.gateway.process import run

    return run(settings)


def plain_settings(arguments: Sequence[str]) -> GatewaySettings | None:
    """The settings that flags with their values give; None where there is anything else to see, or to complain of."""
    return _FLAGS.plain_settings(arguments)


def register(app: "typer.Typer") -> None:
    """Add the command, with a flag for each setting."""
    _FLAGS.register(app, "gateway", _HELP, "Broker", lambda settings: run(settings))
