"""Archives topics as Parquet files, updates and verifies them; option `archive` reads archive and topic as one.

Importing the package does not import Spark; the first use of one of its names does.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.spark.archive.archive_runs import ArchiveProgress as ArchiveProgress
    from millstream.spark.archive.archive_runs import archive as archive
    from millstream.spark.archive.verification import ArchiveVerdict as ArchiveVerdict
    from millstream.spark.archive.verification import verify as verify

__all__ = ["ArchiveProgress", "ArchiveVerdict", "archive", "verify"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millstream.spark.archive import archive_runs, verification

    return getattr(verification if hasattr(verification, name) else archive_runs, name)
