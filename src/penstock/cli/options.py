"""Options that several commands share."""

from typing import Annotated

import typer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"

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

Timeout = Annotated[float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to go on trying.")]

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
