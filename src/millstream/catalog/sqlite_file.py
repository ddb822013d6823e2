"""The SQLite file itself: who owns it, how it is opened, and how an older one is brought up to date."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from millstream.catalog.schema import APPLICATION_ID, MIGRATIONS
from millstream.model.errors import ErrorCode, MillstreamError


def own(path: Path) -> int:
    """Lock the file beside the catalog; the lock ends with the process, however it ends."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise MillstreamError(ErrorCode.DATA_DIRECTORY_IN_USE, f"another process owns the catalog {path}") from None
    return descriptor


def connect(path: Path) -> sqlite3.Connection:
    # Workers are several threads; the lock in `_alone` lets one of them at a time use the connection.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(sql: sqlite3.Connection, path: Path) -> None:
    """Bring the file to the newest schema, within the transaction of the caller."""
    version = sql.execute("PRAGMA user_version").fetchone()[0]
    owner = sql.execute("PRAGMA application_id").fetchone()[0]
    if owner != APPLICATION_ID and (owner or version or sql.execute("SELECT 1 FROM sqlite_schema").fetchone()):
        raise MillstreamError(
            ErrorCode.CATALOG_REFUSED,
            f"{path} is a database of another program (application id {owner:#x}); choose another data directory",
        )
    if version > len(MIGRATIONS):
        raise MillstreamError(
            ErrorCode.CATALOG_REFUSED,
            f"{path} has schema version {version}; this version of Millstream knows up to {len(MIGRATIONS)}",
        )
    for migration in MIGRATIONS[version:]:
        # Not executescript(): it would commit first, and the steps would no longer be one transaction.
        for statement in _statements(migration):
            sql.execute(statement)
    sql.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    sql.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
