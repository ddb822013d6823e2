"""The `penstock` command."""

import os
import sys
import traceback
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import bench, cluster, config, context, group, serve, topic
from penstock.cli.command_line import CommandLine
from penstock.cli.completion import COMPLETE_VARIABLE, PROGRAM, completion
from penstock.cli.completion import prepare as prepare_completion
from penstock.cli.dump import dump
from penstock.cli.failures import EXIT_BUG, EXIT_INTERRUPTED
from penstock.cli.get import get
from penstock.cli.info import info
from penstock.cli.output import printable
from penstock.cli.put import put
from penstock.cli.sql import sql
from penstock.cli.tail import tail

app = typer.Typer(
    name="penstock",
    cls=CommandLine,
    help="An event-streaming platform: one durable log, read as a stream or worked off as a queue.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # Paragraphs are filled again, whatever lines their source has.
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
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
app.command()(tail)
app.command()(dump)
app.command()(info)
app.add_typer(group.app, name="group")
app.add_typer(config.app, name="config")
app.add_typer(cluster.app, name="cluster")
app.command()(sql)
app.add_typer(context.app, name="context")
app.add_typer(bench.app, name="bench")
app.command()(completion)


DEBUG_VARIABLE = "PENSTOCK_DEBUG"


def main() -> None:
    """Run the command line; ends the process."""
    _fill_closed_streams()
    try:
        if COMPLETE_VARIABLE in os.environ:
            prepare_completion()
        app(prog_name=PROGRAM)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        sys.exit(_tell_bug(error))


def _fill_closed_streams() -> None:
    """Let no file or connection get the number of a standard stream that is closed, and be written to by mistake."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _tell_bug(error: Exception) -> int:
    """What nobody foresaw, in one line; with its traceback where that was asked for, and from a broker always."""
    if os.environ.get(DEBUG_VARIABLE) or sys.argv[1:2] == ["serve"]:
        traceback.print_exception(error)
    sys.stderr.write(f"penstock: this is a bug: {type(error).__name__}: {printable(str(error))}\n")
    sys.stderr.write(f"  With {DEBUG_VARIABLE}=1 in the environment it shows where; please report it with that.\n")
    return EXIT_BUG
