"""Defines the special timestamps of an offset lookup, and its result."""

from msgspec import Struct

from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.limits import NO_LEADER_EPOCH, NO_TIMESTAMP

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
"""Special timestamps of ListOffsets, as in Kafka. In DeleteRecords, LATEST stands for the high watermark."""


class FoundOffset(Struct, frozen=True):
    """The message that a lookup has found. All fields are -1 if there is none."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


NOT_FOUND = FoundOffset(Offset(-1), NO_TIMESTAMP, NO_LEADER_EPOCH)
