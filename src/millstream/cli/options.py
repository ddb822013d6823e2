"""Options that several commands share."""

import math
from collections.abc import Collection
from typing import Annotated

import typer

from millstream.cli.commands.completion import complete_topic
from millstream.cli.failures import usage_error
from millstream.cli.positions import EXPECTED
from millstream.model.default_bootstrap import BOOTSTRAP_VARIABLE
from millstream.model.default_bootstrap import DEFAULT_BOOTSTRAP as DEFAULT_BOOTSTRAP

TIMEOUT_MAX_S = 1_000_000.0
PARTITIONS_MAX = 2**31 - 1
REPLICAS_MAX = 2**15 - 1
"""What the protocol has numbers for; what a broker takes is for it to say."""

CONTEXT_KEY = "millstream.context"
"""Under which the name of the chosen context is kept while a command line is read."""


def _find_brokers(context: typer.Context, value: str) -> str:
    return value if context.resilient_parsing else find_brokers(context, value)


def find_brokers(context: typer.Context, value: str) -> str:
    """The brokers named by flag or environment, else those of the chosen context, else of the current one."""
    source = context.get_parameter_source("bootstrap")
    if source is not None and source.name != "DEFAULT":
        return value
    from millstream.cli.contexts import read_contexts

    return read_contexts().chosen(context.meta.get(CONTEXT_KEY)) or value


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT,...",
        help="Brokers to ask first; any one of them is enough. Otherwise those of the context.",
        callback=_find_brokers,
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs; errors too, on standard error.")]


def _check_timeout(value: float) -> float:
    if math.isnan(value):  # It is neither below the least nor above the most.
        raise typer.BadParameter("nan is no time")
    return value


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        max=TIMEOUT_MAX_S,
        metavar="SECONDS",
        help="How long to go on trying.",
        callback=_check_timeout,
    ),
]

OnlyPartitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, max=PARTITIONS_MAX, help="Only this one (repeatable); otherwise all."),
]

From = Annotated[str, typer.Option("--from", "-f", metavar="PLACE", help=f"Where to begin: {EXPECTED}.")]

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show time, partition, offset, key and headers too.")]

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
Compression = Annotated[str, typer.Option("--compression", "-z", metavar="|".join(COMPRESSIONS))]

ACKS = {"all": -1, "1": 1, "0": 0}
Acks = Annotated[str, typer.Option("--acks", metavar="|".join(ACKS), help="Who must have it before it counts.")]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only ask the broker whether it would do it.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

TopicName = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False, autocompletion=complete_topic),
]


def check_choice(flag: str, value: str, choices: Collection[str]) -> None:
    """An error that names the flag and what it takes, unless this is one of them."""
    if value not in choices:
        raise usage_error(f"{flag} {value!r}: expected one of {', '.join(choices)}")
