"""Implements `millstream pipeline init`, which creates a pipeline from a template."""

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import AsJson
from millstream.cli.output import print_json, print_line, print_table


def init(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Name of the pipeline and of what it writes.", show_default=False),
    ] = None,
    template: Annotated[
        str, typer.Option("--template", "-t", metavar="TEMPLATE", help="Template to start from.")
    ] = "count",
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Topic that it reads.")] = "orders",
    as_list: Annotated[bool, typer.Option("--list", "-l", help="List the templates.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a pipeline from a template in the current directory: a file, or a directory of files.

    `millstream pipeline run` runs it unchanged, and you can edit it. Existing files are never overwritten.
    """
    with failures_explained(as_json):
        if as_list == (name is not None):
            raise usage_error(
                "give a name for the pipeline, or --list", "`millstream pipeline init --list` shows templates."
            )
        if name is None:
            _list(as_json)
        else:
            _create(name, template, topic, as_json)


def _list(as_json: bool) -> None:
    from millstream.spark.pipelines.templates import TEMPLATES

    if as_json:
        print_json([{"template": each.name, "purpose": each.purpose} for each in TEMPLATES])
    else:
        print_table(("template", "purpose"), [(each.name, each.purpose) for each in TEMPLATES])


def _create(name: str, template: str, topic: str, as_json: bool) -> None:
    from millstream.spark.pipelines import templates

    created = templates.make(templates.template(template), name, topic, Path())
    if as_json:
        print_json({"template": template, "files": [str(path) for path in created]})
        return
    for path in created:
        print_line(f"{path}{'/' if path.is_dir() else ''}")
    print_line()
    print_line(f"Run it with: millstream pipeline run {created[0]}")
