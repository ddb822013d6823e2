"""`penstock pipeline`: work on topics with Spark.

Of Spark, which is large and has to be installed by itself, nothing is imported before a command needs it.
"""

from importlib.util import find_spec

import typer

from penstock.cli.failures import HintedError
from penstock.model.errors import ErrorCode

app = typer.Typer(
    help="Work on topics with Spark: run pipelines that are files, on this machine or on a Spark cluster.",
    no_args_is_help=True,
)


def spark_expected() -> None:
    """NOT_INSTALLED, with what to install, where Spark is not there; whether there is a Java is for Spark's start."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        text = f"Spark is not installed here ({', '.join(missing)})"
        hint = "Get it with: pip install 'penstock[spark]' (and 'penstock[spark-java]' where there is no Java)"
        raise HintedError(ErrorCode.NOT_INSTALLED, text, hint)
