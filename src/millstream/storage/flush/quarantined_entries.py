"""What a journal has of a log that is quarantined, put aside so that the journal can go: `<log directory>.kept`.

A sealed file (see `sealed_file`) in the data directory, whose payload is the entries as they lie in a journal's frame.
Without it, one quarantined log would keep every later journal from being removed. A start that can recover the log,
because what was missing has been brought back, uses the entries as if they were still in the journal, and then removes
the file.
"""

from collections.abc import Sequence

from millstream.seams.disk import Disk
from millstream.storage import sealed_file
from millstream.storage.flush.journal import JournalEntry, packed, unpacked

SUFFIX = ".kept"
KIND = b"MSTRMKE1"


def write(disk: Disk, log_path: str, entries: Sequence[JournalEntry]) -> None:
    """Put the entries aside durably (blocking); raises OSError."""
    sealed_file.write(disk, log_path + SUFFIX, KIND, b"".join(packed(entries)))


def read(disk: Disk, log_path: str) -> list[JournalEntry]:
    """What was put aside for a log, if something was (blocking); raises OSError."""
    payload = sealed_file.read(disk, log_path + SUFFIX, KIND)
    return list(unpacked(memoryview(payload))) if payload is not None else []


def remove(disk: Disk, log_path: str) -> None:
    """The entries are needed no longer (blocking)."""
    try:
        disk.remove(log_path + SUFFIX)
    except FileNotFoundError:
        pass
