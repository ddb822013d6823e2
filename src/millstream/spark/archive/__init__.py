"""Topics as Parquet files, brought up to date and checked; `.option("archive", path)` reads them and the topic as one.

Nothing of Spark is imported before something of here is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.spark.archive.checking import ArchiveVerdict as ArchiveVerdict
    from millstream.spark.archive.checking import verify as verify
    from millstream.spark.archive.running import ArchiveProgress as ArchiveProgress
    from millstream.spark.archive.running import archive as archive

__all__ = ["ArchiveProgress", "ArchiveVerdict", "archive", "verify"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millstream.spark.archive import checking, running

    return getattr(checking if hasattr(checking, name) else running, name)
