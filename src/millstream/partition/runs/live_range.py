"""Holds the lowest offset and the lowest key that are still part of an index. The index sets them for its runs."""


class LiveRange:
    """The lower bounds of live entries.

    Entries with lower offsets belong to messages that the log has removed. Entries with lower keys are not needed any
    more.

    Invariant: both bounds only increase. The bounds are not saved, so a start begins without bounds.
    """

    __slots__ = ("low_key", "start_offset")

    def __init__(self) -> None:
        self.start_offset = 0
        self.low_key = b""

    @property
    def is_bounded(self) -> bool:
        return bool(self.start_offset or self.low_key)

    def trimmed(self, start_offset: int) -> None:
        """Raise the lowest live offset to the new start of the log."""
        assert start_offset >= self.start_offset, "a log start only increases"
        self.start_offset = start_offset

    def done_below(self, key: bytes) -> None:
        """Set the lowest key that is still needed."""
        assert key >= self.low_key, "the lowest key only increases"
        self.low_key = key
