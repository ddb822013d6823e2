"""Reads the names of topics from the catalog file in a data directory."""

import shutil
import sqlite3
import tempfile
from pathlib import Path

CATALOG_NAME = "catalog.sqlite"
_TRIES = 5


def topic_names(directory: Path) -> dict[str, str]:
    """Returns the topic names by topic id. The result is empty if there is no readable catalog.

    Reads a copy of the file, because opening the original would create or change SQLite's files beside it.
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
    """Returns size and modification time of the catalog file and its write-ahead log, as far as they exist."""
    found = {}
    for path in (catalog, catalog.with_name(catalog.name + "-wal")):
        if path.is_file():
            stat = path.stat()
            found[path] = (stat.st_size, stat.st_mtime_ns)
    return found
