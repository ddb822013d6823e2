"""Implements `millstream doctor`, which says what is wrong with a stopped or a running broker and what to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.failures import EXIT_DAMAGED, failures_explained
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ShortTimeout
from millstream.cli.output import counted, print_json, print_line

if TYPE_CHECKING:
    from millstream.cli.doctor.diagnosis import Diagnosis


def doctor(
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DIRECTORIES", help="Data directories of a stopped broker, separated by commas."
        ),
    ] = None,
    timeout: ShortTimeout = 10.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a broker and what to do.

    With --data it examines the files of a stopped broker as the next start will find them, and changes nothing.
    Otherwise it examines the running broker. The exit code is 7 if there is a problem.
    """
    with failures_explained(as_json):
        found = [*(_stopped(data) if data is not None else _running(bootstrap, timeout))]
        problems = sum(each.level == "problem" for each in found)
        if as_json:
            print_json({"problems": problems, "diagnoses": [each._asdict() for each in found]})
        else:
            _print(found, problems)
    if problems:
        raise typer.Exit(EXIT_DAMAGED)


def _stopped(data: str) -> "Iterator[Diagnosis]":
    from millstream.cli.doctor.stopped_broker import examine_directories

    return examine_directories([Path(name.strip()) for name in data.split(",")])


def _running(bootstrap: str, timeout_s: float) -> "Iterator[Diagnosis]":
    from millstream.cli.doctor.running_broker import examine_broker
    from millstream.cli.session import connected

    with connected(bootstrap, timeout_s) as session:
        yield from examine_broker(session, timeout_s)


def _print(found: "list[Diagnosis]", problems: int) -> None:
    for each in found:
        print_line(f"{each.level:8} {each.subject}: {each.text}")
        if each.advice:
            print_line(f"         {each.advice}")
    warnings = sum(each.level == "warning" for each in found)
    print_line(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}.")
