"""`millstream completion`: what teaches a shell to complete our commands, and what is asked of a broker for that.

Completing happens while somebody types: a broker that does not answer at once is left alone, without a word.
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


def completion(shell: Annotated[Shell, typer.Argument(help="The shell to make it for.")]) -> None:
    """Print a script that makes a shell complete commands, options and topic names.

    For bash: `source <(millstream completion bash)` in ~/.bashrc; for zsh the same in ~/.zshrc, behind compinit; for
    fish: `millstream completion fish > ~/.config/fish/completions/millstream.fish`.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # Typer offers it to no checker.

    script = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell.value)
    print_bytes(f"{script}\n".encode())


def prepare() -> None:
    """Let Typer answer the questions that its scripts ask by an environment variable; only then is it called."""
    from typer.completion import completion_init  # type: ignore[attr-defined]  # As above.

    completion_init()


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin like this, as the broker of the command line tells them; none where it does not."""
    try:
        names = _topic_names(context)
    except Exception:  # Whatever is wrong, a half-typed line is not the place to say so.
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
