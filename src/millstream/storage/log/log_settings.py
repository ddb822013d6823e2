"""Defines the settings of a log, which come from its topic."""

from msgspec import Struct


class LogSettings(Struct, frozen=True):
    """The settings of a topic that its logs need; -1 means no limit."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    index_interval_bytes: int = 4096
    delete: bool = True
    """True when retention removes messages by age and size."""
    compact: bool = False
    """True when compaction keeps only the last message of each key; `cleanable_range` uses the settings below."""
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5
