"""Implements `millstream serve`, which runs a broker in this process."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.cli.process_flags import ProcessFlags
from millstream.node.settings import TABLE, BrokerSettings

if TYPE_CHECKING:
    import typer

_HELP = """Start a broker.

Each setting is read from its flag, the environment (--kafka-port is MILLSTREAM_KAFKA_PORT) or the TOML file
(kafka_port = 9092), in this order of precedence.
"""
_FLAGS = ProcessFlags(TABLE)


def run(settings: BrokerSettings) -> int:
    """Runs a broker until a signal ends it. Returns the exit code."""
    from millstream.supervisor.serve import run

    return run(settings)


def check(settings: BrokerSettings) -> int:
    """Checks whether a broker can start with these settings. Returns the exit code of the start."""
    from millstream.supervisor.serve_check import run_check

    return run_check(settings)


def plain_settings(arguments: Sequence[str]) -> BrokerSettings | None:
    """Parses plain flags with values. Returns None if the line contains anything else or a mistake."""
    return _FLAGS.plain_settings(arguments)


def register(app: "typer.Typer") -> None:
    """Adds the command to `app`, with one flag per setting."""
    _FLAGS.register(app, "serve", _HELP, "Broker", lambda settings: run(settings), check)
