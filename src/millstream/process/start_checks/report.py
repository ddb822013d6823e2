"""Prints the results of `--check`: one line for each setting, directory or port, and a summary."""

import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millstream.model.errors import MillstreamError
from millstream.process.exit_codes import EXIT_CLEAN, exit_code
from millstream.process.start_checks.ports import check_ports

PROBLEM, OK = "problem  ", "ok       "
"""The first column of a line."""


class CheckedItem(NamedTuple):
    """One checked setting, directory or port. `code` is the exit code of a start, which fails unless it is 0."""

    text: str
    code: int = EXIT_CLEAN


def report(items: Iterable[CheckedItem]) -> int:
    """Prints each check on standard output. Returns the exit code that a start would have."""
    items = [*items]
    problems = [item for item in items if item.code != EXIT_CLEAN]
    for item in items:
        sys.stdout.write(f"{PROBLEM if item.code else OK}{item.text}\n")
    sys.stdout.write(
        f"The start would fail: {len(problems)} of {len(items)} checks found a problem.\n"
        if problems
        else f"All {len(items)} checks passed; nothing was started.\n"
    )
    return problems[0].code if problems else EXIT_CLEAN


def checked_ports(host: str, ports: Mapping[str, int]) -> Iterable[CheckedItem]:
    """Yields whether each port, named by its setting, can be bound."""
    for name, port in ports.items():
        try:
            check_ports(host, {name: port}, patience_s=0.0)
            yield CheckedItem(f"{name} {port}: free")
        except MillstreamError as problem:
            yield CheckedItem(f"{name} {port}: {problem.detail}", exit_code(problem))
