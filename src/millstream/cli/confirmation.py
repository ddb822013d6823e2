"""Asking before something is done that cannot be undone."""

import sys

import typer

from millstream.cli.failures import usage_error
from millstream.cli.output import printable


def ask(doing: str, question: str, *, as_json: bool) -> None:
    """Go on only if somebody says yes: silence is no consent, and a program is to say --yes."""
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        raise usage_error(f"nobody can be asked whether to {doing}; add --yes")
    typer.confirm(printable(question), abort=True)
