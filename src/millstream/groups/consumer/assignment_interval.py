"""Limits how often a group computes its target assignment.

Many members that join or leave together cost only one computation.
"""

from collections.abc import Collection

from millstream.groups.consumer.assignors import Assignment, partition_count

ASSIGN_US = 10
"""Rough upper bound for the duration of an assignment, per member and per partition."""

HEARTBEAT_US = 100
"""Rough upper bound for the duration of the heartbeat that a member sends when its watch is answered."""

ASSIGN_ONE_IN = 10
"""At most one part in this many of the time is spent on the assignments of one group."""


class AssignmentInterval:
    """The time at which a group may compute its next assignment."""

    __slots__ = ("_from_ms", "_interval_ms")

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._from_ms = 0

    def left_ms(self, now_ms: int) -> int:
        """Returns the time until the next assignment is allowed; 0 if it is allowed now."""
        return max(0, self._from_ms - now_ms)

    def assigned(self, targets: Collection[Assignment], now_ms: int, *, heartbeats: int) -> None:
        """Records that these targets were computed now, and that members send so many heartbeats because of them.

        The group keeps these targets at least for the configured interval, and longer if it is very large or causes
        many heartbeats. If no member got partitions, the next computation may follow at once. An example is a group of
        iterator clients that have not requested a partition.
        """
        pause_ms = 0
        if self._interval_ms and any(targets):
            work_us = ASSIGN_US * (len(targets) + sum(map(partition_count, targets))) + HEARTBEAT_US * heartbeats
            pause_ms = max(self._interval_ms, ASSIGN_ONE_IN * work_us // 1000)
        self._from_ms = now_ms + pause_ms
