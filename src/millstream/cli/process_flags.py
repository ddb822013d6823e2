"""Commands that start a process: their flags are the rows of that process' table of settings.

A line that only gives flags their values is read here, and never sees Typer, which is imported for the others: for
those that ask for help, and for those with a mistake in them, so that there is one place that explains mistakes.
"""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic

from millstream.model.errors import MillstreamError
from millstream.process.settings import S, SettingField, SettingsTable

if TYPE_CHECKING:
    import typer

DIVIDER = ";"
"""Between the parts of a value whose flag was given several times."""


class ProcessFlags(Generic[S]):
    """The flags of one such command."""

    def __init__(self, table: SettingsTable[S]) -> None:
        self._table = table

    def plain_settings(self, arguments: Sequence[str]) -> S | None:
        """What flags with their values say; None where there is anything else to see, or to complain of."""
        fields = {field.flag: field for field in self._table.fields.values()}
        flags: dict[str, str] = {}
        rest = iter(arguments)
        for argument in rest:
            flag, is_joined, value = argument.partition("=")
            said = value if is_joined else next(rest, None)
            if said is None or (flag != "--config" and flag not in fields):
                return None
            is_further = flag in flags and flag in fields and fields[flag].is_repeatable
            flags[flag] = f"{flags[flag]}{DIVIDER}{said}" if is_further else said
        try:
            config = flags.pop("--config", None)
            return self._settings(config, {fields[flag].name: value for flag, value in flags.items()})
        except MillstreamError:
            return None

    def register(self, app: "typer.Typer", name: str, text: str, panel: str, run: Callable[[S], int]) -> None:
        """Add the command to `app`, with a flag for each setting."""

        def command(config: str | None, **flags: str | list[str] | None) -> None:
            import typer

            from millstream.cli.failures import failures_explained

            with failures_explained(as_json=False, prints=False):
                settings = self._settings(config, {name: _joined(value) for name, value in flags.items()})
            raise typer.Exit(run(settings))

        parameters = [_parameter("config", str | None, "--config", "FILE", "Settings in a TOML file.")]
        parameters += [_parameter_of(field) for field in self._table.fields.values()]
        # Typer reads flags off a signature, so that is what the table is turned into.
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions take attributes
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        first, _, _ = text.partition("\n")
        app.command(name, help=text, short_help=first, rich_help_panel=panel)(command)

    def _settings(self, config: str | None, flags: Mapping[str, str | None]) -> S:
        path = config or os.environ.get(self._table.config_variable)
        return self._table.load(flags, os.environ, _read_config(path) if path else None)


def _joined(value: str | list[str] | None) -> str | None:
    return (DIVIDER.join(value) or None) if isinstance(value, list) else value


def _parameter_of(field: SettingField) -> inspect.Parameter:
    text = f"{field.help} One of {', '.join(field.choices)}." if field.choices else field.help
    kind = list[str] | None if field.is_repeatable else str | None
    metavar = "NAME=VALUE" if field.is_repeatable else field.kind.upper()
    return _parameter(field.name, kind, field.flag, metavar, text, _text(field.default))


def _parameter(name: str, kind: Any, flag: str, metavar: str, text: str, default: str = "") -> inspect.Parameter:
    import typer

    option = typer.Option(flag, metavar=metavar, help=text, show_default=default or False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _text(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, dict):
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def _read_config(path: str) -> tuple[str, str]:
    try:
        return path, Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        from millstream.cli.failures import usage_error

        raise usage_error(f"the settings file {path} cannot be read: {error}") from None
