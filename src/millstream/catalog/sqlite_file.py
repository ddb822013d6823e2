"""Opens the SQLite file: locks it, connects to it, and migrates its schema."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from millstream.catalog.schema import APPLICATION_ID, MIGRATIONS
from millstream.model.errors import ErrorCode, MillstreamError

_OWNER_ONLY = 0o600


def own(path: Path) -> int:
    """Locks the file beside the catalog. The lock ends with the process, even after a crash."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise MillstreamError(
            ErrorCode.DATA_DIRECTORY_IN_USE,
            f"another process uses the catalog {path}; stop it, or choose another data directory",
        ) from None
    return descriptor


def protect(path: Path) -> None:
    """Creates the file if it does not exist, and lets only its owner read it and SQLite's files beside it.

    SQLite gives new files beside the catalog the mode of the catalog. Files of another user stay as they are.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY))
    for suffix in ("", "-wal", "-shm", ".lock", ".change"):
        each = Path(f"{path}{suffix}")
        try:
            found = each.stat()
            if found.st_uid == os.geteuid() and found.st_mode & 0o077:
                each.chmod(_OWNER_ONLY)
        except FileNotFoundError:
            pass


def connect(path: Path) -> sqlite3.Connection:
    # Several worker threads use the connection; the lock in `_alone` admits one at a time.
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
    """Migrates the file to the newest schema, within the caller's transaction."""
    version = sql.execute("PRAGMA user_version").fetchone()[0]
    owner = sql.execute("PRAGMA application_id").fetchone()[0]
    if owner != APPLICATION_ID and (owner or version or sql.execute("SELECT 1 FROM sqlite_schema").fetchone()):
        raise MillstreamError(
            ErrorCode.CATALOG_REFUSED,
            f"{path} belongs to another program (application id {owner:#x}); choose another data directory",
        )
    if version > len(MIGRATIONS):
        raise MillstreamError(
            ErrorCode.CATALOG_REFUSED,
            f"{path} has schema version {version}, but at most {len(MIGRATIONS)} is supported; use a newer release",
        )
    for migration in MIGRATIONS[version:]:
        # executescript() would commit first, and the statements would no longer be one transaction.
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


def is_full(error: sqlite3.OperationalError) -> bool:
    """Return True if a full disk may be the cause. SQLite reports some failed writes as other input/output errors."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
