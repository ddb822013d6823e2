"""`millstream serve`: a broker in this process."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.cli.process_flags import ProcessFlags
from millstream.node.settings import TABLE, BrokerSettings

if TYPE_CHECKING:
    import typer

_HELP = """Start a broker.

A setting is taken from its flag, else from the environment (--kafka-port is MILLSTREAM_KAFKA_PORT), else from the TOML
file (kafka_port = 9092), else it has its default.
"""
_FLAGS = ProcessFlags(TABLE)


def run(settings: BrokerSettings) -> int:
    """Run a broker until a signal ends it, and tell the exit code."""
    from millstream.supervisor.serve import run

    return run(settings)


def plain_settings(arguments: Sequence[str]) -> BrokerSettings | None:
    """The settings that flags with their values give; None where there is anything else to see, or to complain of."""
    return _FLAGS.plain_settings(arguments)


def register(app: "typer.Typer") -> None:
    """Add the command, with a flag for each setting."""
    _FLAGS.register(app, "serve", _HELP, "Broker", lambda settings: run(settings))
