"""`--context`, for every command that talks to a broker.

Such a command is known by its `--bootstrap`; so none of them has to say that it takes `--context` too.
"""

from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from penstock.cli.contexts import CONTEXT_VARIABLE
from penstock.cli.options import CONTEXT_KEY


class ContextGroup(TyperGroup):
    """A group of commands, those of its groups included, that gives them the option when they are looked up."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _give_option(command)
        return command


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
