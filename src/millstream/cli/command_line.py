"""What holds for the whole line: `--context` for every command that asks a broker, and how its mistakes are told.

A command that asks a broker is known by its `--bootstrap`; so none of them has to say that it takes `--context` too.
"""

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from millstream.cli.contexts import CONTEXT_VARIABLE
from millstream.cli.failures import explain, usage_error
from millstream.cli.options import CONTEXT_KEY
from millstream.model.errors import MillstreamError

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""What Typer raises for any mistake in a command line; it has a public name only for this one of them."""


class CommandLine(TyperGroup):
    """All commands, those of groups included; they get their `--context` when they are looked up."""

    def main(self, args: Sequence[str] | None = None, *further: Any, **named: Any) -> Any:
        """Run a command line and exit; a mistake in it is told as JSON where the line asks for that."""
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in given[: given.index("--")] if "--" in given else "--json" in given
        try:
            code = super().main(given, *further, **named | {"standalone_mode": not as_json})
        except MillstreamError as error:
            sys.exit(explain(error, as_json))
        except _UsageError as error:
            sys.exit(explain(_mistake(error), as_json))
        sys.exit(code)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _give_option(command)
        return command


def _mistake(error: Any) -> MillstreamError:
    """What Typer found wrong, as an error of our own."""
    hint = f"`{error.ctx.command_path} --help` shows what it takes." if error.ctx else ""
    return usage_error(error.format_message(), hint)


def _give_option(command: Any) -> None:
    if isinstance(command, TyperGroup):
        for each in command.commands.values():
            _give_option(each)
    elif isinstance(command, TyperCommand):
        names = {parameter.name for parameter in command.params}
        if "bootstrap" in names and "context" not in names:
            at = next(index for index, each in enumerate(command.params) if each.name == "bootstrap")
            command.params.insert(at + 1, _option())


def _option() -> TyperOption:
    return TyperOption(
        param_decls=["--context", "context"],
        envvar=CONTEXT_VARIABLE,
        show_envvar=True,
        metavar="NAME",
        help="A cluster by the name it has in the file of contexts.",
        is_eager=True,
        expose_value=False,
        callback=_remember,
    )


def _remember(context: Any, _option: Any, value: str | None) -> None:
    context.meta[CONTEXT_KEY] = value
