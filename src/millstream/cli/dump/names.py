"""Reads the names of topics from the catalog file in a data directory."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CATALOG_NAME = "catalog.sqlite"
_TRIES = 5


def topic_names(directory: Path) -> dict[str, str]:
    """Returns the topic names by topic id. The result is empty if there is no readable catalog."""
    if not (directory / CATALOG_NAME).is_file():
        return {}
    try:
        with catalog_copy(directory) as connection:
            return dict(connection.execute("SELECT topic_id, name FROM topics"))
    except (OSError, sqlite3.Error):
        return {}


@contextmanager
def catalog_copy(directory: Path) -> Iterator[sqlite3.Connection]:
    """Opens a copy of the catalog, because opening the original would create or change SQLite's files beside it."""
    catalog = directory / CATALOG_NAME
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
            yield connection
        finally:
            connection.close()


def _state(catalog: Path) -> dict[Path, tuple[int, int]]:
    """Returns size and modification time of the catalog file and its write-ahead log, as far as they exist."""
    found = {}
    for path in (catalog, catalog.with_name(catalog.name + "-wal")):
        if path.is_file():
            stat = path.stat()
            found[path] = (stat.st_size, stat.st_mtime_ns)
    return found
