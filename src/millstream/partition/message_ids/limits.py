"""Defines how many message ids a broker recognises and for how long."""

from millstream.partition.runs.budget import RunLimits

WINDOW_MS = 24 * 3600 * 1000
PER_BROKER_MAX = 10_000_000


class IdLimits(RunLimits, frozen=True):
    window_ms: int = WINDOW_MS
    most: int = PER_BROKER_MAX
