"""Adds `--context` to the commands that connect to a broker, and reports usage errors as text, JSON or a log line.

Every command with a `--bootstrap` option gets `--context` automatically, so no command has to declare it.
"""

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from millstream.cli.failures import explain, usage_error
from millstream.cli.json_logs import log_failure, wants_json_logs
from millstream.cli.options import CONTEXT_KEY
from millstream.model.errors import MillstreamError
from millstream.process.contexts import CONTEXT_VARIABLE

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""The base class of Typer's usage errors. Typer exports only its subclass `BadParameter`."""


class CommandLine(TyperGroup):
    """The root command group. Adds `--context` to a command, or to all commands of a group, on lookup."""

    def main(self, args: Sequence[str] | None = None, *further: Any, **named: Any) -> Any:
        """Runs a command line and exits. If the line contains `--json`, usage errors are printed as JSON.

        If it starts a process whose logs are JSON, they are logged.
        """
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in given[: given.index("--")] if "--" in given else "--json" in given
        is_logged = wants_json_logs(given)
        try:
            code = super().main(given, *further, **named | {"standalone_mode": not (as_json or is_logged)})
        except MillstreamError as error:
            sys.exit(log_failure(error) if is_logged else explain(error, as_json))
        except _UsageError as error:
            sys.exit(log_failure(_converted(error)) if is_logged else explain(_converted(error), as_json))
        sys.exit(code)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _add_context_option(command)
        return command


def _converted(error: Any) -> MillstreamError:
    """Converts a usage error of Typer to a MillstreamError."""
    hint = f"`{error.ctx.command_path} --help` lists its arguments and options." if error.ctx else ""
    return usage_error(error.format_message(), hint)


def _add_context_option(command: Any) -> None:
    if isinstance(command, TyperGroup):
        for each in command.commands.values():
            _add_context_option(each)
    elif isinstance(command, TyperCommand):
        names = {parameter.name for parameter in command.params}
        if "bootstrap" in names and "context" not in names:
            at = next(index for index, each in enumerate(command.params) if each.name == "bootstrap")
            command.params.insert(at + 1, _context_option())


def _context_option() -> TyperOption:
    return TyperOption(
        param_decls=["--context", "context"],
        envvar=CONTEXT_VARIABLE,
        show_envvar=True,
        metavar="NAME",
        help="Context that holds the brokers' addresses (see `millstream context`).",
        is_eager=True,
        expose_value=False,
        callback=_store_context,
    )


def _store_context(context: Any, _option: Any, value: str | None) -> None:
    context.meta[CONTEXT_KEY] = value
