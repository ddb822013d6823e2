"""Builds the commands that start a process, `serve` and `gateway`, with one flag per setting.

Plain flags with values are parsed here, without importing Typer. Typer handles every other line, such as `--help` or a
line with a mistake, so that mistakes are explained in one place only.
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
"""Joins the values of a flag that was given several times."""


class ProcessFlags(Generic[S]):
    """The flags of one process, derived from its settings table."""

    def __init__(self, table: SettingsTable[S]) -> None:
        self._table = table

    def plain_settings(self, arguments: Sequence[str]) -> S | None:
        """Parses plain flags with values. Returns None if the line contains anything else or a mistake."""
        fields = {field.flag: field for field in self._table.fields.values()}
        flags: dict[str, str] = {}
        rest = iter(arguments)
        for argument in rest:
            flag, is_joined, value = argument.partition("=")
            given = value if is_joined else next(rest, None)
            if given is None or (flag != "--config" and flag not in fields):
                return None
            is_further = flag in flags and flag in fields and fields[flag].is_repeatable
            flags[flag] = f"{flags[flag]}{DIVIDER}{given}" if is_further else given
        try:
            config = flags.pop("--config", None)
            return self._settings(config, {fields[flag].name: value for flag, value in flags.items()})
        except MillstreamError:
            return None

    def register(
        self,
        app: "typer.Typer",
        name: str,
        text: str,
        panel: str,
        run: Callable[[S], int],
        check: Callable[[S], int] | None = None,
    ) -> None:
        """Adds the command to `app`, with one flag per setting, and `--check` if `check` is given."""

        def command(config: str | None, only_check: bool = False, **flags: str | list[str] | None) -> None:
            import typer

            settings = self._settings(config, {name: _joined(value) for name, value in flags.items()})
            raise typer.Exit(check(settings) if only_check and check else run(settings))

        parameters = [_parameter("config", str | None, "--config", "FILE", "TOML file with settings.")]
        parameters += [_parameter_of(field) for field in self._table.fields.values()]
        if check is not None:
            parameters.append(_check_parameter())
        # Typer derives the flags from a signature, so the table is converted to one.
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
    return _parameter(field.name, kind, field.flag, metavar, text, field.default_text)


def _parameter(name: str, kind: Any, flag: str, metavar: str, text: str, default: str = "") -> inspect.Parameter:
    import typer

    shown = f"{text.removesuffix('.')} (default: {default})." if default else text
    option = typer.Option(flag, metavar=metavar, help=shown, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _check_parameter() -> inspect.Parameter:
    import typer

    text = "Check settings, directories and ports, print the result, and exit without starting."
    kind = Annotated[bool, typer.Option("--check", help=text)]
    return inspect.Parameter("only_check", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)


def _read_config(path: str) -> tuple[str, str]:
    try:
        return path, Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        from millstream.cli.failures import usage_error

        raise usage_error(f"cannot read the settings file {path}: {error}") from None
