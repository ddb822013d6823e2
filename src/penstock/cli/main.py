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


@app.callback()
def penstock(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.", is_eager=True)] = False,
) -> None:
    if version:
        sys.stdout.write(f"penstock {__version__}\n")
        raise typer.Exit


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
