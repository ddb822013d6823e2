"""Options that several commands share."""

import math
from typing import Annotated

import typer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
TIMEOUT_MAX_S = 1_000_000.0
PARTITIONS_MAX = 2**31 - 1
REPLICAS_MAX = 2**15 - 1
"""What the protocol has numbers for; what a broker takes is for it to say."""

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT,…",
        help="Brokers to ask first; any one of them is enough.",
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

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
