"""Defines options that several commands share."""

from collections.abc import Callable, Collection
from typing import Annotated, Any

import typer

from millstream.cli.commands.completion import complete_topic
from millstream.cli.failures import usage_error
from millstream.cli.positions import EXPECTED
from millstream.model.default_bootstrap import BOOTSTRAP_VARIABLE
from millstream.model.default_bootstrap import DEFAULT_BOOTSTRAP as DEFAULT_BOOTSTRAP
from millstream.model.units import format_duration_ms, quoted, read_duration_s

TIMEOUT_MAX_S = 1_000_000.0
PARTITIONS_MAX = 2**31 - 1
REPLICAS_MAX = 2**15 - 1
"""The largest numbers that the protocol can express. A broker may accept less."""

CONTEXT_KEY = "millstream.context"
"""Key in Typer's `Context.meta` that holds the name of the chosen context while a command line is parsed."""


def _find_brokers(context: typer.Context, value: str) -> str:
    return value if context.resilient_parsing else find_brokers(context, value)


def find_brokers(context: typer.Context, value: str) -> str:
    """Returns the brokers that the user chose: a flag wins over the environment, and that over the current context."""
    source = context.get_parameter_source("bootstrap")
    context_source = context.get_parameter_source("context")
    is_context_flag = context_source is not None and context_source.name == "COMMANDLINE"
    if source is not None and source.name != "DEFAULT" and not (is_context_flag and source.name == "ENVIRONMENT"):
        return value
    from millstream.process.contexts import read_contexts

    return read_contexts().chosen(context.meta.get(CONTEXT_KEY)) or value


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT,...",
        help="Bootstrap brokers; one that can be reached is enough. Overrides the context.",
        callback=_find_brokers,
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; errors too, on standard error.")]


def duration_parser(least_s: float, most_s: float = TIMEOUT_MAX_S) -> Callable[[str | float], float]:
    """Returns a parser of durations such as `30s` or `5m`. A number without a unit is in seconds."""

    def parse(given: str | float) -> float:
        try:
            seconds = read_duration_s(str(given))
        except ValueError as error:
            raise typer.BadParameter(f"{quoted(given)} is {error}") from None
        if not least_s <= seconds <= most_s:
            raise typer.BadParameter(f"{quoted(given)} is not from {least_s:g} to {most_s:.0f} seconds")
        return seconds

    return parse


def duration_option(flag: str, text: str, default_s: float, least_s: float = 0.1) -> Any:
    """Returns an option that takes a duration. Help shows the default with its unit."""
    shown = f"{text.removesuffix('.')} (default: {format_duration_ms(round(default_s * 1000))})."
    return typer.Option(flag, parser=duration_parser(least_s), metavar="DURATION", help=shown, show_default=False)


_TIMEOUT = "How long to retry before the command fails, such as 30s or 5m."
Timeout = Annotated[float, duration_option("--timeout", _TIMEOUT, 30.0)]
ShortTimeout = Annotated[float, duration_option("--timeout", _TIMEOUT, 10.0)]

OnlyPartitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", min=0, max=PARTITIONS_MAX, help="Only this partition (repeatable; default: all)."
    ),
]

From = Annotated[str, typer.Option("--from", "-f", metavar="POSITION", help=f"Start position: {EXPECTED}.")]

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show time, partition, offset, key and headers.")]

Raw = Annotated[bool, typer.Option("--raw", help="Print only the bytes of the values, without line ends.")]

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
Compression = Annotated[str, typer.Option("--compression", "-z", metavar="|".join(COMPRESSIONS))]

ACKS = {"all": -1, "1": 1, "0": 0}
Acks = Annotated[
    str,
    typer.Option(
        "--acks", metavar="|".join(ACKS), help="Acknowledgement to wait for: all replicas, the leader (1) or none (0)."
    ),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the broker check the change, without making it.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

TopicName = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False, autocompletion=complete_topic),
]


def check_choice(flag: str, value: str, choices: Collection[str]) -> None:
    """Raises a usage error that names the flag and its choices, unless `value` is one of them."""
    if value not in choices:
        raise usage_error(f"{flag} {value!r}: expected one of {', '.join(choices)}")
