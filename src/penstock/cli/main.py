"""The `penstock` command."""

import sys
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import serve, topic
from penstock.cli.failures import EXIT_INTERRUPTED
from penstock.cli.get import get
from penstock.cli.info import info
from penstock.cli.put import put

app = typer.Typer(
    name="penstock",
    help="An event-streaming platform: one durable log, read as a stream or worked off as a queue.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"penstock {__version__}\n")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_tell_version)
    ] = False,
) -> None:
    """What holds for all commands; the version is told before any of them is looked for."""


serve.register(app)
app.add_typer(topic.app, name="topic")
app.command()(put)
app.command()(get)
app.command()(info)


def main() -> None:
    """Run the command line; ends the process."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
