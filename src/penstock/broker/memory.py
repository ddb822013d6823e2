"""Memory that peers can make the broker use, counted and bounded for all connections together.

Invariants: `incoming_bytes` is what frames hold from the moment room was given for them until their request is
answered; it exceeds its bound by no more than one read of a connection. `outgoing_bytes` is what slow readers have
not taken.
"""

from collections.abc import Callable

INCOMING_BYTES_MAX = 512 * 1024 * 1024
OUTGOING_BYTES_MAX = 256 * 1024 * 1024


class Memory:
    def __init__(
        self, incoming_bytes_max: int = INCOMING_BYTES_MAX, outgoing_bytes_max: int = OUTGOING_BYTES_MAX
    ) -> None:
        self._incoming_max = incoming_bytes_max
        self._outgoing_max = outgoing_bytes_max
        self._waiting: dict[Callable[[], None], int] = {}
        self.incoming_bytes = 0
        self.outgoing_bytes = 0

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def take(self, size: int) -> None:
        """Count bytes that are there already and cannot be refused: small frames, out of a buffer just read."""
        self.incoming_bytes += size

    def ask(self, size: int, when_free: Callable[[], None]) -> bool:
        """Take `size` bytes for a frame if they are free; otherwise `when_free` is called once they have been taken.

        First come, first served: who asks while others wait is put behind them.
        """
        if not self._waiting and self.incoming_bytes + size <= self._incoming_max:
            self.incoming_bytes += size
            return True
        self._waiting[when_free] = size
        return False

    def forget(self, when_free: Callable[[], None]) -> None:
        """Whoever waited has gone."""
        self._waiting.pop(when_free, None)

    def give_back(self, size: int) -> None:
        self.incoming_bytes -= size
        while self._waiting:
            when_free, wanted = next(iter(self._waiting.items()))
            # A frame larger than the bound itself gets its turn when nobody else holds anything.
            if self.incoming_bytes and self.incoming_bytes + wanted > self._incoming_max:
                return
            del self._waiting[when_free]
            self.incoming_bytes += wanted
            when_free()

    def answer_bytes_max(self, wanted: int) -> int:
        """How many bytes an answer may have now: less when slow readers hold much already, 0 when too much."""
        free = self._outgoing_max - self.outgoing_bytes
        return max(0, min(wanted, free // 4))
