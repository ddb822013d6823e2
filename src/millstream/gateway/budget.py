"""How much memory requests under way hold: all of them together have one budget, whichever interface they came by."""

from millstream.model.errors import ErrorCode, MillstreamError

HELD_BYTES = 256 * 1024 * 1024


class Budget:
    """Bytes that all requests under way hold together."""

    def __init__(self, most_bytes: int = HELD_BYTES) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0

    def take(self, size_bytes: int, own_bytes: int = 0, *, is_refusable: bool = True) -> None:
        """GATEWAY_FULL, taking nothing, when that is more than is left and others than the caller hold something.

        Unless it is held in any case: the answer to what was done, and cannot be asked for again, is not refused.
        """
        if is_refusable and self.held_bytes > own_bytes and self.held_bytes + size_bytes > self.most_bytes:
            text = f"requests under way hold {self.held_bytes} of {self.most_bytes} bytes; try again in a moment"
            raise MillstreamError(ErrorCode.GATEWAY_FULL, text)
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes


class Share:
    """What one request holds: its body, and its answer until that is taken."""

    __slots__ = ("_budget", "held_bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held_bytes = 0

    def take(self, size_bytes: int, *, is_refusable: bool = True) -> None:
        """As the budget has it."""
        self._budget.take(size_bytes, self.held_bytes, is_refusable=is_refusable)
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int | None = None) -> None:
        """So much of it, or all; a second time nothing."""
        size_bytes = self.held_bytes if size_bytes is None else size_bytes
        self._budget.give_back(size_bytes)
        self.held_bytes -= size_bytes
