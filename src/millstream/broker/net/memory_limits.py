"""Counts and limits the memory that clients can make the broker use, over all connections.

Frames belong to one of three size classes, each with a memory pool of its own. A few connections that slowly send huge
frames delay other huge frames only, and no request of the usual sizes. A pool serves frames first come, first served.

A frame is admitted as a whole, before most of it has arrived. If memory were granted bit by bit, incomplete frames
could block each other forever.

Invariants: `held_bytes` of a pool counts admitted frames, from their admission until their request is answered. It also
counts the received bytes of frames that wait for admission, at most one short read each. Admitted frames exceed the
limit only if there is a single one. `outgoing_bytes` counts the responses that slow readers have not taken.
"""

from collections.abc import Callable

INCOMING_BYTES_MAX = 512 * 1024 * 1024
OUTGOING_BYTES_MAX = 256 * 1024 * 1024

MEMORY_RETRY_S = 0.1
"""Delay before a response that found no memory tries again."""

SMALL_FRAME_BYTES_MAX = 64 * 1024
MEDIUM_FRAME_BYTES_MAX = 2 * 1024 * 1024
"""Twice the default maximum batch size of a topic. Requests of clients with default settings fit."""


class MemoryPool:
    """The memory for frames of one size class."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._admitted = 0
        self.waiting: dict[Callable[[], None], int] = {}
        """Waiting frames in order: the callback for their admission, and the bytes that they need."""
        self.held_bytes = 0

    def take(self, size: int) -> None:
        """Admit a frame that has already arrived completely, without a check."""
        self.held_bytes += size
        self._admitted += 1

    def hold(self, size: int) -> None:
        """Count received bytes of a frame that is not admitted yet."""
        self.held_bytes += size

    def ask(self, more: int, when_free: Callable[[], None]) -> bool:
        """Admit a frame that needs `more` bytes in addition to those it holds. Returns True if they are free.

        Otherwise the frame queues after the waiting ones, and `when_free` is called once it is admitted.
        """
        if not self.waiting and self._fits(more):
            self.take(more)
            return True
        self.waiting[when_free] = more
        return False

    def drop(self, size: int, when_free: Callable[[], None]) -> None:
        """Remove a frame that was not admitted."""
        self.waiting.pop(when_free, None)
        self.held_bytes -= size
        self._serve()

    def give_back(self, size: int) -> None:
        """Return the memory of an admitted frame."""
        self.held_bytes -= size
        self._admitted -= 1
        assert self._admitted >= 0, "a frame gives its memory back once"
        if self.waiting:
            self._serve()

    def _fits(self, more: int) -> bool:
        # A frame that is larger than the limit is admitted when no other frame is.
        return not self._admitted or self.held_bytes + more <= self._bytes_max

    def _serve(self) -> None:
        assert self.held_bytes >= 0, "no frame gives back more than it holds"
        while self.waiting:
            when_free, more = next(iter(self.waiting.items()))
            if not self._fits(more):
                return
            del self.waiting[when_free]
            self.take(more)
            when_free()


class MemoryLimits:
    def __init__(
        self, *, incoming_bytes_max: int = INCOMING_BYTES_MAX, outgoing_bytes_max: int = OUTGOING_BYTES_MAX
    ) -> None:
        self.small = MemoryPool(incoming_bytes_max // 8)
        self.medium = MemoryPool(incoming_bytes_max * 3 // 8)
        self.large = MemoryPool(incoming_bytes_max // 2)
        self.incoming_bytes_max = incoming_bytes_max
        self.outgoing_bytes_max = outgoing_bytes_max
        self.outgoing_bytes = 0

    @property
    def incoming_bytes(self) -> int:
        return self.small.held_bytes + self.medium.held_bytes + self.large.held_bytes

    @property
    def waiting_frames(self) -> int:
        """The number of frames that wait for admission."""
        return len(self.small.waiting) + len(self.medium.waiting) + len(self.large.waiting)

    @property
    def is_waited_for(self) -> bool:
        return bool(self.small.waiting or self.medium.waiting or self.large.waiting)

    def pool(self, frame_bytes: int) -> MemoryPool:
        """Return the pool for frames of this size."""
        if frame_bytes <= SMALL_FRAME_BYTES_MAX:
            return self.small
        return self.medium if frame_bytes <= MEDIUM_FRAME_BYTES_MAX else self.large

    def give_back(self, frame_bytes: int) -> None:
        """Return the memory of a complete frame."""
        pool = self.small if frame_bytes <= SMALL_FRAME_BYTES_MAX else self.pool(frame_bytes)
        pool.give_back(frame_bytes)

    def answer_bytes_max(self, wanted: int) -> int:
        """Return the maximum size of a response: `wanted`, or less (down to 0) if slow readers hold much memory."""
        free = self.outgoing_bytes_max - self.outgoing_bytes
        return max(0, min(wanted, free // 4))
