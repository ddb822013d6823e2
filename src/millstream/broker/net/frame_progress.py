"""Measures how fast a frame arrives, to detect peers that hold memory without sending."""

STALL_S = 3.0
RATE_MIN_BYTES_S = 256 * 1024
"""Minimum rate of a frame while other frames wait for memory. Otherwise any rate is accepted."""


class FrameProgress:
    """The progress of the frame that one connection is receiving. All times are of the event loop's clock."""

    __slots__ = ("_bytes", "_frame", "_since", "heard_at")

    def __init__(self) -> None:
        self.heard_at = 0.0
        self._frame = -1
        self._since = 0.0
        self._bytes = 0

    def heard(self, now: float, *, frame: int, filled: int) -> None:
        """Record that data of the frame with number `frame` has arrived, `filled` bytes so far."""
        self.heard_at = now
        if frame != self._frame:
            self._frame = frame
            self.restart(now, filled)

    def restart(self, now: float, filled: int) -> None:
        """Start measuring again, because reading was paused and the peer could not send until now."""
        self.heard_at = self._since = now
        self._bytes = filled

    def is_slow(self, now: float, filled: int) -> bool:
        if now - self.heard_at >= STALL_S:
            return True
        span = now - self._since
        return span >= STALL_S and filled - self._bytes < RATE_MIN_BYTES_S * span
