"""Implements `millstream gateway`, which serves the web API and gRPC from this process."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.cli.process_flags import ProcessFlags
from millstream.gateway.settings import TABLE, GatewaySettings
from millstream.process import logs
from millstream.process.exit_codes import EXIT_NOT_INSTALLED
from millstream.process.gateway_packages import missing_gateway_packages
from millstream.process.start_checks.report import CheckedItem, report

if TYPE_CHECKING:
    import typer

_HELP = """Start a gateway, which serves the web API and gRPC.

A gateway is stateless: any number of them can serve the same brokers behind a load balancer. Each setting is read from
its flag, the environment (--http-port is MILLSTREAM_GATEWAY_HTTP_PORT) or the TOML file (http_port = 8080), in this
order of precedence.
"""
_FLAGS = ProcessFlags(TABLE)


def run(settings: GatewaySettings) -> int:
    """Runs a gateway until a signal ends it. Returns the exit code."""
    if not_installed := _not_installed():
        logs.configure(settings.log_level, settings.log_format)
        logs.report_failure(not_installed)
        return EXIT_NOT_INSTALLED
    from millstream.gateway.process import run

    return run(settings)


def check(settings: GatewaySettings) -> int:
    """Checks whether a gateway can start with these settings. Returns the exit code of the start."""
    if not_installed := _not_installed():
        return report([CheckedItem(not_installed, EXIT_NOT_INSTALLED)])
    from millstream.gateway.check import check_start

    return report(check_start(settings))


def _not_installed() -> str:
    missing = missing_gateway_packages()
    if not missing:
        return ""
    return (
        f"packages of the gateway are not installed ({', '.join(missing)});"
        " install them with: pip install 'millstream[gateway]'"
    )


def plain_settings(arguments: Sequence[str]) -> GatewaySettings | None:
    """Parses plain flags with values. Returns None if the line contains anything else or a mistake."""
    return _FLAGS.plain_settings(arguments)


def register(app: "typer.Typer") -> None:
    """Adds the command to `app`, with one flag per setting."""
    _FLAGS.register(app, "gateway", _HELP, "Broker", lambda settings: run(settings), check)
