"""Registers all commands with Typer."""

from typing import Annotated

import typer

from millstream import __version__
from millstream.cli.command_line import CommandLine
from millstream.cli.commands import (
    bench,
    cluster,
    cluster_create,
    config,
    context,
    gateway,
    group,
    pipeline,
    serve,
    topic,
)
from millstream.cli.commands.completion import completion
from millstream.cli.commands.dump import dump
from millstream.cli.commands.get import get
from millstream.cli.commands.info import info
from millstream.cli.commands.put import put
from millstream.cli.commands.sql import sql
from millstream.cli.commands.tail import tail
from millstream.cli.doctor.command import doctor
from millstream.cli.main import PROGRAM

app = typer.Typer(
    name=PROGRAM,
    cls=CommandLine,
    help="An event-streaming broker: a durable, partitioned log that speaks Kafka's protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # Rewraps paragraphs, whatever line breaks the source has.
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millstream {__version__}")
        raise typer.Exit


@app.callback()
def millstream(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Defines the options of the whole program. `--version` is handled before a command is looked up."""


serve.register(app)
gateway.register(app)
app.add_typer(topic.app, name="topic")
app.command()(put)
app.command()(get)
app.command()(tail)
app.command()(dump)
app.command()(info)
app.command()(doctor)
app.add_typer(group.app, name="group")
app.add_typer(config.app, name="config")
cluster_create.register(cluster.app)
app.add_typer(cluster.app, name="cluster")
app.command()(sql)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(context.app, name="context")
app.add_typer(bench.app, name="bench")
app.command()(completion)
