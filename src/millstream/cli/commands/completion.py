"""Implements `millstream completion`, which prints shell scripts, and completes topic names for them.

Completion runs while the user types. If the broker does not answer in time, no topic is offered and no error is shown.
"""

from enum import StrEnum
from typing import Annotated

import typer

from millstream.cli.main import COMPLETE_VARIABLE, PROGRAM
from millstream.cli.output import print_bytes

ANSWER_WITHIN_S = 1.0


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Shell to print the script for.")]) -> None:
    """Print a shell script that completes commands, options and topic names.

    For bash, add `source <(millstream completion bash)` to ~/.bashrc. For zsh, add the same line with zsh to ~/.zshrc,
    after compinit. For fish, run `millstream completion fish > ~/.config/fish/completions/millstream.fish`.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # Typer does not export it.

    script = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell.value)
    print_bytes(f"{script}\n".encode())


def prepare() -> None:
    """Enables Typer to answer the requests of its completion scripts, which set an environment variable."""
    from typer.completion import completion_init  # type: ignore[attr-defined]  # As above.

    completion_init()


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the topics that begin with `incomplete`, or none if the command line's broker does not answer."""
    try:
        names = _topic_names(context)
    except Exception:  # A half-typed command line must not show any error.
        return []
    return [name for name in names if name.startswith(incomplete)]


def _topic_names(context: typer.Context) -> list[str]:
    import asyncio

    from millstream.cli.options import DEFAULT_BOOTSTRAP, find_brokers
    from millstream.sdk.connection.cluster import ConnectionSettings
    from millstream.sdk.wire_client import WireClient

    bootstrap = find_brokers(context, context.params.get("bootstrap") or DEFAULT_BOOTSTRAP)

    async def ask() -> list[str]:
        settings = ConnectionSettings(connect_timeout_s=ANSWER_WITHIN_S)
        async with WireClient(bootstrap, connection=settings) as client:
            views = await client.list_topics(timeout_s=ANSWER_WITHIN_S)
            return [view.name for view in views]

    async def bounded() -> list[str]:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await ask()

    return asyncio.run(bounded())
