"""`penstock serve`: a broker in this process. Its flags are the rows of the broker's table of settings.

A line that only gives flags their values is read here, and never sees Typer, which is imported for the others: for
those that ask for help, and for those with a mistake in them, so that there is one place that explains mistakes.
"""

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from penstock.model.errors import PenstockError
from penstock.node.settings import CONFIG_VARIABLE, FIELDS, Settings, load

if TYPE_CHECKING:
    import typer

_HELP = """Start a broker.

A setting is taken from its flag, else from the environment (--kafka-port is PENSTOCK_KAFKA_PORT), else from the TOML
file (kafka_port = 9092), else it has its default.
"""


def run(settings: Settings) -> int:
    """Run a broker until a signal ends it, and tell the exit code."""
    from penstock.node.serve import run

    return run(settings)


def plain_settings(arguments: Sequence[str]) -> Settings | None:
    """The settings that flags with their values give; None where there is anything else to see, or to complain of."""
    names = {"--config": "config"} | {field.flag: name for name, field in FIELDS.items()}
    flags: dict[str, str | None] = {}
    rest = iter(arguments)
    for argument in rest:
        flag, is_joined, value = argument.partition("=")
        flags[flag] = value if is_joined else next(rest, None)
    if not names.keys() >= flags.keys() or None in flags.values():
        return None
    try:
        return _settings(flags.pop("--config", None), {names[flag]: value for flag, value in flags.items()})
    except PenstockError:
        return None


def register(app: "typer.Typer") -> None:
    """Add the command, with a flag for each setting."""
    parameters = [_parameter("config", "--config", "FILE", "Settings in a TOML file.")]
    for name, row in FIELDS.items():
        text = f"{row.help} One of {', '.join(row.choices)}." if row.choices else row.help
        parameters.append(_parameter(name, row.flag, row.kind.upper(), text, _text(row.default)))
    # Typer reads flags off a signature, so that is what the table is turned into.
    _serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions take attributes
    _serve.__annotations__ = {each.name: each.annotation for each in parameters}
    app.command("serve", help=_HELP, short_help="Start a broker.", rich_help_panel="Broker")(_serve)


def _serve(config: str | None, **flags: str | None) -> None:
    import typer

    from penstock.cli.failures import failures_explained

    with failures_explained(as_json=False, prints=False):
        settings = _settings(config, flags)
    raise typer.Exit(run(settings))


def _parameter(name: str, flag: str, metavar: str, text: str, default: str = "") -> inspect.Parameter:
    import typer

    option = typer.Option(flag, metavar=metavar, help=text, show_default=default or False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )


def _text(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(default)
    return str(default).lower() if isinstance(default, bool) else str(default)


def _settings(config: str | None, flags: Mapping[str, str | None]) -> Settings:
    path = config or os.environ.get(CONFIG_VARIABLE)
    return load(flags, os.environ, _read_config(path) if path else None)


def _read_config(path: str) -> tuple[str, str]:
    try:
        return path, Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        from penstock.cli.failures import usage_error

        raise usage_error(f"the settings file {path} cannot be read: {error}") from None
