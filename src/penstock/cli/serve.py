"""`penstock serve`: a broker in this process. Its flags are the rows of the broker's table of settings."""

import inspect
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.failures import failures_explained, usage_error

_HELP = """Start a broker.

A setting is taken from its flag, else from the environment (--kafka-port is PENSTOCK_KAFKA_PORT), else from the TOML
file (kafka_port = 9092), else it has its default.
"""


def register(app: typer.Typer) -> None:
    """Add the command, with a flag for each setting."""
    from penstock.node.settings import FIELDS

    def serve(config: str | None, **flags: str | None) -> None:
        raise typer.Exit(_serve(config, flags))

    parameters = [_parameter("config", "--config", "FILE", "Settings in a TOML file.")]
    for name, row in FIELDS.items():
        text = f"{row.help} One of {', '.join(row.choices)}." if row.choices else row.help
        parameters.append(_parameter(name, row.flag, row.kind.upper(), text, _text(row.default)))
    # Typer reads flags off a signature, so that is what the table is turned into.
    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions take attributes
    serve.__annotations__ = {each.name: each.annotation for each in parameters}
    app.command("serve", help=_HELP, short_help="Start a broker.", rich_help_panel="Broker")(serve)


def _parameter(name: str, flag: str, metavar: str, text: str, default: str = "") -> inspect.Parameter:
    option = typer.Option(flag, metavar=metavar, help=text, show_default=default or False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )


def _text(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(default)
    return str(default).lower() if isinstance(default, bool) else str(default)


def _serve(config: str | None, flags: dict[str, str | None]) -> int:
    from penstock.node import settings

    with failures_explained(as_json=False, prints=False):
        path = config or os.environ.get(settings.CONFIG_VARIABLE)
        chosen = settings.load(flags, os.environ, _read_config(path) if path else None)
    from penstock.node.serve import run

    return run(chosen)


def _read_config(path: str) -> tuple[str, str]:
    try:
        return path, Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"the settings file {path} cannot be read: {error}") from None
