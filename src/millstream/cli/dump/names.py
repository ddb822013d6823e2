"""The names of topics, from the catalog's file in a data directory."""

import shutil
import sqlite3
import tempfile
from pathlib import Path

CATALOG_NAME = "catalog.sqlite"
_TRIES = 5


def topic_names(directory: Path) -> dict[str, str]:
    """Name by topic id; empty where there is no catalog that can be read: then ids have to do.

    A copy is read, since opening the file itself would make or change the files SQLite keeps beside it.
    """
    catalog = directory / CATALOG_NAME
    if not catalog.is_file():
        return {}
    try:
        with tempfile.TemporaryDirectory(prefix="millstream-") as scratch:
            copy = Path(scratch) / CATALOG_NAME
            for _ in range(_TRIES):
                before = _state(catalog)
                for source in before:
                    shutil.copyfile(source, scratch / Path(source.name))
                if _state(catalog) == before:
                    break
            connection = sqlite3.connect(copy)
            try:
                return dict(connection.execute("SELECT topic_id, name FROM topics"))
            finally:
                connection.close()
    except (OSError, sqlite3.Error):
        return {}


def _state(catalog: Path) -> dict[Path, tuple[int, int]]:
    """The catalog's file and the log of changes beside it, as far as they are there, and when each was changed."""
    found = {}
    for path in (catalog, catalog.with_name(catalog.name + "-wal")):
        if path.is_file():
            stat = path.stat()
            found[path] = (stat.st_size, stat.st_mtime_ns)
    return found
