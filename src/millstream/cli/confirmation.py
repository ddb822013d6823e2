"""Asks for confirmation before a destructive operation."""

import sys

import typer

from millstream.cli.failures import usage_error
from millstream.cli.output import printable


def ask(doing: str, question: str, *, as_json: bool) -> None:
    """Asks the user, and aborts unless the answer is yes. Without a terminal, or with --json, raises a usage error."""
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        raise usage_error(f"cannot ask for confirmation to {doing} without a terminal or with --json; add --yes")
    typer.confirm(printable(question), abort=True)
