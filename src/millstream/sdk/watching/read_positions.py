"""Converts the positions of a read to offsets; positions like "beginning" or a time are looked up."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.start_positions import StartPositions, checked_offset
from millstream.sdk.time_arguments import Times

Position = int | str | float | datetime | timedelta
"""An offset, "beginning", "latest", or a time (seconds since 1970 as a float)."""


async def find_offsets(
    asking: RetryingCaller, times: Times, places: Mapping[TopicPartition, Position], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Return an offset for each partition; raises INVALID_SETTING for an invalid position."""
    if not places:
        raise MillstreamError(ErrorCode.INVALID_SETTING, "a read needs at least one partition")
    alike: dict[str, list[TopicPartition]] = {}
    for where, given in places.items():
        alike.setdefault(repr(given), []).append(where)
    found: dict[TopicPartition, int] = {}
    for some in alike.values():
        position: Any = places[some[0]]
        if isinstance(position, Mapping):
            raise MillstreamError(
                ErrorCode.INVALID_SETTING, f"offset={position!r}: a read has one position for a partition"
            )
        if type(position) is int:
            found |= dict.fromkeys(some, checked_offset(position, "offset"))
            continue
        found |= await StartPositions(position, times, "offset").find(asking, some, deadline)
    return {where: found[where] for where in places}
