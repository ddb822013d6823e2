"""Provides the Spark source and sink for topics, and a matching Spark session. Needs `millstream[spark]`.

Importing the package does not import Spark; the first use of one of its names does.
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
