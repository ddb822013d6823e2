"""Memory that peers can make the broker use, counted and bounded for all connections together.

Frames are of three sizes, and each size has a part of the memory to itself: a few connections that send giants, however
slowly, hold up other giants, and no request of the usual sizes. Within a part, first come, first served.

A frame is admitted as a whole, before most of it is received: were room given out bit by bit, frames could hold each
other up with neither of them getting to its end.

Invariants: a pool's `held_bytes` is what frames hold from the moment room was given for them until their request is
answered, and what has arrived of those that wait for room (no more than one short read each). The admitted ones
exceed the bound only if there is just one. `outgoing_bytes` is what slow readers have not taken.
"""

from collections.abc import Callable

INCOMING_BYTES_MAX = 512 * 1024 * 1024
OUTGOING_BYTES_MAX = 256 * 1024 * 1024

HUNGRY_S = 0.1
"""How long to wait before looking again for memory for an answer, which others hold."""

SMALL_FRAME_BYTES_MAX = 64 * 1024
MEDIUM_FRAME_BYTES_MAX = 2 * 1024 * 1024
"""Two of the largest batch that a topic takes by default: what clients send unless they were told otherwise."""


class MemoryPool:
    """The memory for frames of one size."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._admitted = 0
        self.waiting: dict[Callable[[], None], int] = {}
        """Whom to call when there is room for so many bytes, in the order in which they asked."""
        self.held_bytes = 0

    def take(self, size: int) -> None:
        """Admit a frame that is there already as a whole and cannot be refused."""
        self.held_bytes += size
        self._admitted += 1

    def hold(self, size: int) -> None:
        """Count what has arrived of a frame that is not admitted yet."""
        self.held_bytes += size

    def ask(self, more: int, when_free: Callable[[], None]) -> bool:
        """Admit a frame that needs `more` bytes than it holds, if they are free; otherwise `when_free` is called once
        it has been admitted. Who asks while others wait is put behind them."""
        if not self.waiting and self._fits(more):
            self.take(more)
            return True
        self.waiting[when_free] = more
        return False

    def drop(self, size: int, when_free: Callable[[], None]) -> None:
        """A frame that was not admitted has gone."""
        self.waiting.pop(when_free, None)
        self.held_bytes -= size
        self._serve()

    def give_back(self, size: int) -> None:
        """An admitted frame has gone."""
        self.held_bytes -= size
        self._admitted -= 1
        if self.waiting:
            self._serve()

    def _fits(self, more: int) -> bool:
        # A frame larger than the bound itself gets its turn when it is alone.
        return not self._admitted or self.held_bytes + more <= self._bytes_max

    def _serve(self) -> None:
        while self.waiting:
            when_free, more = next(iter(self.waiting.items()))
            if not self._fits(more):
                return
            del self.waiting[when_free]
            self.take(more)
            when_free()


class MemoryLimits:
    def __init__(
        self, incoming_bytes_max: int = INCOMING_BYTES_MAX, outgoing_bytes_max: int = OUTGOING_BYTES_MAX
    ) -> None:
        self.small = MemoryPool(incoming_bytes_max // 8)
        self.medium = MemoryPool(incoming_bytes_max * 3 // 8)
        self.large = MemoryPool(incoming_bytes_max // 2)
        self._outgoing_max = outgoing_bytes_max
        self.outgoing_bytes = 0

    @property
    def incoming_bytes(self) -> int:
        return self.small.held_bytes + self.medium.held_bytes + self.large.held_bytes

    @property
    def is_waited_for(self) -> bool:
        return bool(self.small.waiting or self.medium.waiting or self.large.waiting)

    def pool(self, frame_bytes: int) -> MemoryPool:
        """Where a frame of this size has its memory from."""
        if frame_bytes <= SMALL_FRAME_BYTES_MAX:
            return self.small
        return self.medium if frame_bytes <= MEDIUM_FRAME_BYTES_MAX else self.large

    def give_back(self, frame_bytes: int) -> None:
        """A whole frame has gone."""
        pool = self.small if frame_bytes <= SMALL_FRAME_BYTES_MAX else self.pool(frame_bytes)
        pool.give_back(frame_bytes)

    def answer_bytes_max(self, wanted: int) -> int:
        """How many bytes an answer may have now: less when slow readers hold much already, 0 when too much."""
        free = self._outgoing_max - self.outgoing_bytes
        return max(0, min(wanted, free // 4))
