"""Packs the list of an index's runs, which is stored in the file `<name>.snapshot` beside the log.

Layout, big-endian, inside the envelope of `millstream.partition.snapshot_encoding`: the next free run number (8 bytes),
the number of runs (4), and a row for each run. A row has the run's number (8), its entries (8), the bytes of its filter
(4), its end offset (8), and the ages of its oldest and newest entry in milliseconds (8, 8). If keys are read in order,
the first and the last key of the run follow.

The file is replaced as a whole, so a crash leaves the new or the previous list. If the checksum is wrong, the list is
not used and the index is rebuilt from the log.
"""

import struct
from collections.abc import Sequence

from millstream.partition.runs.layout import RunLayout
from millstream.partition.runs.run import RunFacts, SortedRun
from millstream.partition.snapshot_encoding import SnapshotError, seal, unseal

_VERSION = 1
_HEAD = struct.Struct(">QI")


def _row(layout: RunLayout) -> struct.Struct:
    keys = "" if layout.is_hashed else f"{layout.key_bytes}s{layout.key_bytes}s"
    return struct.Struct(">QQIqqq" + keys)


def pack_list(layout: RunLayout, next_number: int, runs: Sequence[SortedRun], now_ms: int) -> bytes:
    row, rows = _row(layout), []
    for run in runs:
        number, entries, filter_bytes, end_offset, oldest_ms, newest_ms, *keys = run.facts
        ages = (now_ms - oldest_ms, now_ms - newest_ms)
        rows.append(row.pack(number, entries, filter_bytes, end_offset, *ages, *([] if layout.is_hashed else keys)))
    return seal(layout.kind, _VERSION, _HEAD.pack(next_number, len(runs)) + b"".join(rows))


def unpack_list(layout: RunLayout, packed: bytes, now_ms: int) -> tuple[int, list[RunFacts]]:
    """Return the next free number and the runs. Raises SnapshotError if the list cannot be used."""
    payload = unseal(layout.kind, _VERSION, packed)
    if len(payload) < _HEAD.size:
        raise SnapshotError("the list of runs is too short")
    next_number, count = _HEAD.unpack_from(payload)
    row, rows = _row(layout), payload[_HEAD.size :]
    if len(rows) != count * row.size:
        raise SnapshotError(f"the list of runs has {len(rows)} bytes, not {count} rows of {row.size}")
    return next_number, [
        RunFacts(number, entries, filter_bytes, end_offset, now_ms - oldest_ago_ms, now_ms - newest_ago_ms, *keys)
        for number, entries, filter_bytes, end_offset, oldest_ago_ms, newest_ago_ms, *keys in row.iter_unpack(rows)
    ]
