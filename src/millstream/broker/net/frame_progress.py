"""How fast a frame comes in, to tell a peer that sends from one that only holds memory."""

STALL_S = 3.0
RATE_MIN_BYTES_S = 256 * 1024
"""What a frame must come in at while others wait for memory; otherwise any speed will do."""


class FrameProgress:
    """Of the frame that is under way on one connection. All times are the event loop's."""

    __slots__ = ("_bytes", "_frame", "_since", "heard_at")

    def __init__(self) -> None:
        self.heard_at = 0.0
        self._frame = -1
        self._since = 0.0
        self._bytes = 0

    def heard(self, now: float, frame: int, filled: int) -> None:
        """Something came of the frame with this number, of which `filled` bytes are there."""
        self.heard_at = now
        if frame != self._frame:
            self._frame = frame
            self.restart(now, filled)

    def restart(self, now: float, filled: int) -> None:
        """From now on the peer is free to send."""
        self.heard_at = self._since = now
        self._bytes = filled

    def is_slow(self, now: float, filled: int) -> bool:
        if now - self.heard_at >= STALL_S:
            return True
        span = now - self._since
        return span >= STALL_S and filled - self._bytes < RATE_MIN_BYTES_S * span
