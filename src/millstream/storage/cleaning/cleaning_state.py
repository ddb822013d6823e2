"""Tracks how far one log is compacted, and the stage of an exchange of its segments.

Invariant: the stages change only in the order UNKNOWN, NONE, UNKNOWN (while the `exchange` file is being written),
DECIDED, DONE, UNKNOWN. All changes of the stage require the lock, except `recovered` and `checkpointed`.
"""

import asyncio

from millstream.storage.cleaning.cleanable_range import CleanedRange
from millstream.storage.cleaning.segment_exchange import SwapStage


class CleaningState:
    """The compaction state of one log: the clean range and the stage of an exchange."""

    __slots__ = ("cleaned", "lock", "stage")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held during all steps that remove or replace segments of the log."""
        self.stage = SwapStage.UNKNOWN
        self.cleaned: CleanedRange | None = None
        """The clean range, or None until it has been loaded; see `cleanable_range`."""

    def cleaned_to(self, cleaned: CleanedRange) -> None:
        self.cleaned = cleaned

    def recovered(self) -> None:
        """Note that recovery has completed an exchange."""
        self.stage = SwapStage.DONE

    def settled(self) -> None:
        """Note that there is no `exchange` file, not even after a crash."""
        self._changes_from(SwapStage.UNKNOWN)
        self.stage = SwapStage.NONE

    def deciding(self) -> None:
        """Note that the `exchange` file is about to be written."""
        self._changes_from(SwapStage.NONE)
        self.stage = SwapStage.UNKNOWN

    def decided(self) -> None:
        self._changes_from(SwapStage.UNKNOWN)
        self.stage = SwapStage.DECIDED

    def done(self) -> None:
        self._changes_from(SwapStage.DECIDED)
        self.stage = SwapStage.DONE

    def checkpointed(self) -> None:
        """Note that a checkpoint contains the new segment. The removal of the `exchange` file is not flushed."""
        assert self.stage is SwapStage.DONE
        self.stage = SwapStage.UNKNOWN

    def _changes_from(self, stage: SwapStage) -> None:
        assert self.stage is stage, f"the stage is {self.stage}, not {stage}"
        assert self.lock.locked(), "a change of the stage requires the lock"
