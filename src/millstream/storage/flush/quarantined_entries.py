"""Keeps the journal entries of a quarantined log in `<log directory>.kept`, so that the journal can be removed.

The file is a sealed file (see `sealed_file`) in the data directory. Its payload has the format of a journal frame.
Without it, one quarantined log would prevent the removal of all later journals. Once a start can recover the log,
because the missing files are back, it applies the entries as if they were in the journal, and removes the file.
"""

from collections.abc import Sequence

from millstream.seams.disk import Disk
from millstream.storage import sealed_file
from millstream.storage.flush.journal import JournalEntry, packed, unpacked

SUFFIX = ".kept"
KIND = b"MSTRMKE1"


def write(disk: Disk, log_path: str, entries: Sequence[JournalEntry]) -> None:
    """Save the entries durably (blocking). Raise OSError."""
    sealed_file.write(disk, log_path + SUFFIX, KIND, b"".join(packed(entries)))


def read(disk: Disk, log_path: str) -> list[JournalEntry]:
    """The saved entries of a log, if any (blocking). Raise OSError."""
    payload = sealed_file.read(disk, log_path + SUFFIX, KIND)
    return list(unpacked(memoryview(payload))) if payload is not None else []


def remove(disk: Disk, log_path: str) -> None:
    """Remove the saved entries of a log (blocking)."""
    try:
        disk.remove(log_path + SUFFIX)
    except FileNotFoundError:
        pass
