"""Detects a catalog with changed values, and one that lacks acknowledged changes.

SQLite has no checksums of values: one flipped bit renames a topic. And it ignores a damaged end of its write-ahead log,
so an acknowledged change can vanish. Therefore the table `integrity` has a change number and a checksum of all rows,
both updated in the transaction of each change. After the commit, the change number is also written to a file beside the
catalog, without a flush, so it survives the end of the process.

The checksum is the sum of the hashes of all rows. Temporary triggers of the connection add and subtract the rows that a
transaction changes, so a change costs nothing for the other rows. The tables of groups are copies of a log, and are not
included.

File `<catalog>.change`, little-endian: 8 kind, 8 change number, 4 CRC-32C of these. A crash leaves the old or the new
number, because both lie in one sector.
"""

import os
import sqlite3
import struct
from hashlib import blake2b
from pathlib import Path

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.checksum import crc32c

TABLES = {
    "cluster": ("only_row", "cluster_id", "created"),
    "brokers": ("node_id", "host", "port", "incarnation", "registered"),
    "topics": ("topic_id", "name", "partitions", "state", "created"),
    "topic_settings": ("topic_id", "name", "value"),
    "partitions": ("topic_id", "partition", "leader", "leader_epoch", "partition_epoch", "replicas", "in_sync"),
    "producers": ("first_id", "last_id", "node_id", "given"),
    "secrets": ("name", "secret"),
    "producer_groups": ("producer_id", "producer_group", "node_id", "given"),
    "group_settings": ("group_id", "name", "value"),
}
"""The tables whose rows the checksum covers, and their columns."""

_KIND = b"MSTRMCC1"
_CHANGE = struct.Struct("<8sQ")
_HASH_BYTES = 16
_MODULUS = 1 << 8 * _HASH_BYTES


class CatalogIntegrity:
    """Maintains the checksum and the change number of one open catalog."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checksum = 0
        self._change = 0
        self._added = 0
        self._has_changes = False
        self._file = -1

    def open(self, sql: sqlite3.Connection) -> None:
        """Verify the rows and the change number, and begin to follow changes, within the caller's transaction.

        Raises CATALOG_REFUSED if the catalog is damaged or lacks changes, sqlite3.Error and OSError.
        """
        self._checksum = sum(_hash(table, row) for table in TABLES for row in _rows(sql, table)) % _MODULUS
        stored = sql.execute("SELECT change, checksum FROM integrity").fetchone()
        acknowledged = self._acknowledged()
        if stored is None:  # A new catalog, or one that was changed by hand.
            self._change = acknowledged
            sql.execute("INSERT INTO integrity VALUES (1, ?, ?)", (self._change, _encoded(self._checksum)))
        elif stored[1] != _encoded(self._checksum):
            raise MillstreamError(
                ErrorCode.CATALOG_REFUSED,
                f"catalog {self._path} is damaged: its rows do not match their checksum; restore it from a copy "
                "(if the rows were changed by hand: run DELETE FROM integrity)",
            )
        else:
            self._change = stored[0]
        if acknowledged > self._change:
            raise MillstreamError(
                ErrorCode.CATALOG_REFUSED,
                f"catalog {self._path} ends at change {self._change}, but change {acknowledged} was acknowledged: its "
                "write-ahead log is damaged, or it is an older copy; restore the newest catalog, or delete "
                f"{self._path}.change to accept the loss of the later changes",
            )
        sql.create_function("note_row", -1, self._note)
        for table in TABLES:
            for event, rows in (("INSERT", (1,)), ("DELETE", (-1,)), ("UPDATE", (-1, 1))):
                _follow(sql, table, event, rows)

    def _acknowledged(self) -> int:
        """Open the file beside the catalog, and return its change number; 0 if it is missing or damaged."""
        self._file = os.open(f"{self._path}.change", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        data = os.pread(self._file, _CHANGE.size + 4, 0)
        if len(data) < _CHANGE.size + 4 or data[_CHANGE.size :] != _crc(data[: _CHANGE.size]):
            return 0
        kind, number = _CHANGE.unpack_from(data)
        return int(number) if kind == _KIND else 0

    def _note(self, sign: int, table: str, *row: object) -> None:
        self._added += sign * _hash(table, row)
        self._has_changes = True

    def begin(self) -> None:
        """Forget the changes of a transaction that was rolled back."""
        self._added, self._has_changes = 0, False

    def before_commit(self, sql: sqlite3.Connection) -> None:
        """Store the new checksum and change number in the same transaction."""
        if self._has_changes:
            checksum = (self._checksum + self._added) % _MODULUS
            sql.execute(
                "UPDATE integrity SET change = ?, checksum = ?",
                (self._change + 1, _encoded(checksum)),
            )

    def committed(self) -> None:
        """Record the change number outside of the catalog, before the change is acknowledged. Raise OSError."""
        if self._has_changes:
            self._checksum = (self._checksum + self._added) % _MODULUS
            self._change += 1
            self.begin()
        if self._file >= 0:
            head = _CHANGE.pack(_KIND, self._change)
            os.pwrite(self._file, head + _crc(head), 0)

    def close(self) -> None:
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)


def _rows(sql: sqlite3.Connection, table: str) -> sqlite3.Cursor:
    return sql.execute(f"SELECT {', '.join(TABLES[table])} FROM {table}")


def _follow(sql: sqlite3.Connection, table: str, event: str, signs: tuple[int, ...]) -> None:
    """Create a temporary trigger that passes each changed row to `note_row`: old rows with -1, new rows with 1."""
    calls = []
    for sign in signs:
        values = ", ".join(f"{'NEW' if sign > 0 else 'OLD'}.{column}" for column in TABLES[table])
        calls.append(f"SELECT note_row({sign}, '{table}', {values});")
    sql.execute(f"CREATE TEMP TRIGGER follow_{table}_{event} AFTER {event} ON main.{table} BEGIN {' '.join(calls)} END")


def _hash(table: str, row: tuple[object, ...]) -> int:
    return int.from_bytes(blake2b(repr((table, *row)).encode(), digest_size=_HASH_BYTES).digest(), "little")


def _encoded(checksum: int) -> bytes:
    return checksum.to_bytes(_HASH_BYTES, "little")


def _crc(head: bytes) -> bytes:
    return struct.pack("<I", crc32c(head))
