"""Questions for an offset by time, and their answers."""

from typing import NamedTuple

from millstream.model.limits import NO_LEADER_EPOCH, NO_TIMESTAMP

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
"""The times that are none: what ListOffsets asks with them; the first is also DeleteRecords' word for the end."""


class FoundOffset(NamedTuple):
    """An answer to a question by time; -1 throughout when there is no such message."""

    offset: int
    timestamp: int
    leader_epoch: int


NOT_FOUND = FoundOffset(-1, NO_TIMESTAMP, NO_LEADER_EPOCH)
