"""Stores the leader epochs of a partition and the first offset of each.

Invariant: epochs and their first offsets increase from entry to entry. Every batch carries its epoch, so the history
can be rebuilt from the log; the snapshot only shortens that.

After an unclean end of a leadership, a client that knows the epoch of its position can find out whether its offsets
still name the same messages.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.limits import NO_LEADER_EPOCH
from millstream.partition.snapshot_encoding import SnapshotError, seal, unseal

NO_OFFSET = Offset(-1)

_KIND = b"EPOC"
_VERSION = 1
_ENTRY = struct.Struct(">iq")


class EpochEnd(NamedTuple):
    """The end of an epoch: the epoch that was found, and the offset after its last message."""

    epoch: LeaderEpoch
    end_offset: Offset


class Epochs:
    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []

    def __iter__(self) -> Iterator[tuple[LeaderEpoch, Offset]]:
        return iter(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> LeaderEpoch:
        return self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    def begin(self, epoch: LeaderEpoch, *, start_offset: Offset) -> None:
        """Begin an epoch at `start_offset`. Entries of earlier epochs at or after that offset are removed.

        An epoch that is not newer than the latest one is ignored.
        """
        if epoch <= self.latest:
            return
        self.cut(start_offset)
        assert not self._starts or self._starts[-1] < start_offset
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def cut(self, end_offset: Offset) -> None:
        """Remove the epochs that began at or after `end_offset`, because the log was truncated there."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()

    def trim(self, start_offset: Offset) -> None:
        """Remove the epochs without messages at or after `start_offset`, the new log start."""
        gone = bisect_right(self._starts, start_offset) - 1
        if gone >= 0:
            del self._epochs[:gone], self._starts[:gone]
            self._starts[0] = start_offset

    def at(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch that wrote `offset`, or -1 if the offset is before the first known epoch."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NO_LEADER_EPOCH

    def end_of(self, epoch: LeaderEpoch, *, log_end: Offset) -> EpochEnd:
        """Return the end of the largest epoch that is not above `epoch`, as in Kafka's OffsetForLeaderEpoch.

        If `epoch` is older than all known epochs, its end is the start of the first known one. If `epoch` is newer than
        all known epochs, the result is (-1, -1).
        """
        if epoch == self.latest and epoch != NO_LEADER_EPOCH:
            return EpochEnd(epoch, log_end)
        above = bisect_right(self._epochs, epoch)
        if epoch < 0 or above == len(self._epochs):
            return EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)
        return EpochEnd(self._epochs[above - 1] if above else epoch, self._starts[above])

    def snapshot(self) -> bytes:
        return seal(_KIND, _VERSION, b"".join(_ENTRY.pack(*entry) for entry in self))

    def restore(self, sealed: bytes) -> None:
        """Replace the epochs with those of a snapshot. An invalid snapshot raises SnapshotError and changes nothing."""
        payload = unseal(_KIND, _VERSION, sealed)
        if len(payload) % _ENTRY.size:
            raise SnapshotError("the snapshot of epochs ends within an entry")
        entries = list(_ENTRY.iter_unpack(payload))
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
            raise SnapshotError("the epochs of the snapshot are out of order")
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
