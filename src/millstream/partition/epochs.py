"""Leader epochs: from which offset on each leadership wrote.

Invariant: epochs and their first offsets both only grow from entry to entry. Every batch carries its epoch, so the
history can be read back from the log; the snapshot only makes that short.

A client that remembers the epoch of its position learns from it, after a leadership ended uncleanly, whether the
offsets it saw still mean the same messages.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from millstream.model.limits import NO_LEADER_EPOCH
from millstream.partition.snapshot_encoding import SnapshotError, seal, unseal

NO_OFFSET = -1

_KIND = b"EPOC"
_VERSION = 1
_ENTRY = struct.Struct(">iq")


class EpochEnd(NamedTuple):
    """Where an epoch ended: the epoch that really answers, and the offset after its last message."""

    epoch: int
    end_offset: int


class Epochs:
    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    def begin(self, epoch: int, start_offset: int) -> None:
        """Leadership `epoch` writes from `start_offset` on; what an earlier one had written there is void.

        An epoch that has begun already, or is older than the latest, changes nothing.
        """
        if epoch <= self.latest:
            return
        self.cut(start_offset)
        assert not self._starts or self._starts[-1] < start_offset
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def cut(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: epochs that began there or later wrote nothing."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()

    def trim(self, start_offset: int) -> None:
        """The log starts at `start_offset` now: forget epochs that have nothing left."""
        gone = bisect_right(self._starts, start_offset) - 1
        if gone >= 0:
            del self._epochs[:gone], self._starts[:gone]
            self._starts[0] = start_offset

    def at(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 when the history does not reach back that far."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NO_LEADER_EPOCH

    def end_of(self, epoch: int, log_end: int) -> EpochEnd:
        """Where the largest epoch not above `epoch` ended; as Kafka answers OffsetForLeaderEpoch.

        An epoch before all known ones ended where the first known one began. One after all is not known: (-1, -1).
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
        """Take over a snapshot in place of what is known; SnapshotError, and no change, when it cannot be used."""
        payload = unseal(_KIND, _VERSION, sealed)
        if len(payload) % _ENTRY.size:
            raise SnapshotError("the snapshot of epochs ends within an entry")
        entries = list(_ENTRY.iter_unpack(payload))
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
            raise SnapshotError("the epochs of the snapshot are out of order")
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
