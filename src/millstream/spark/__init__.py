"""Topics as DataFrames: a source and a sink for Spark, and the session that suits them. Needs `millstream[spark]`.

Nothing of Spark is imported before something of here is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.spark.sessions import session as session

__all__ = ["session"]


def __getattr__(name: str) -> object:
    if name != "session":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millstream.spark.sessions import session

    return session
