"""Limits the memory that all requests in progress hold together, over HTTP and gRPC."""

from millstream.model.errors import ErrorCode, MillstreamError

HELD_BYTES = 256 * 1024 * 1024

ANSWER_SHARE = 4
"""One response may take this part of the budget, because a part of it exists several times while it is built."""

UNPACKED_SHARE = 8
"""One batch may take this part of the budget when it is decompressed."""


class Budget:
    """Counts the bytes that requests in progress hold, up to a common limit."""

    def __init__(self, most_bytes: int = HELD_BYTES) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0

    @property
    def answer_bytes_max(self) -> int:
        """Size of the largest response to a read."""
        return self.most_bytes // ANSWER_SHARE

    def take(self, size_bytes: int, *, own_bytes: int = 0, is_refusable: bool = True) -> None:
        """Add bytes to the total.

        Raises GATEWAY_FULL, and adds nothing, if the limit would be exceeded and another request holds memory.
        `own_bytes` is the number of bytes that the caller already holds. With `is_refusable=False` the bytes are always
        added. The response to a request that changed something needs this, because the caller cannot repeat the
        request.
        """
        if is_refusable and self.held_bytes > own_bytes and self.held_bytes + size_bytes > self.most_bytes:
            text = f"requests in progress hold {self.held_bytes} of {self.most_bytes} bytes; retry in a moment"
            raise MillstreamError(ErrorCode.GATEWAY_FULL, text)
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes


class Share:
    """Counts the bytes that one request holds: its body, and its answer until the caller has received it."""

    __slots__ = ("_budget", "held_bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held_bytes = 0

    def take(self, size_bytes: int, *, is_refusable: bool = True) -> None:
        """Add bytes to this request and to the budget. Raises as `Budget.take` does."""
        self._budget.take(size_bytes, own_bytes=self.held_bytes, is_refusable=is_refusable)
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int | None = None) -> None:
        """Release this many bytes, by default all. Releasing all of them twice has no effect."""
        size_bytes = self.held_bytes if size_bytes is None else size_bytes
        self._budget.give_back(size_bytes)
        self.held_bytes -= size_bytes


class ReadBudget:
    """Counts what the SDK's reads hold into the budget, until they return their messages."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.unpacked_bytes_max = budget.most_bytes // UNPACKED_SHARE

    def take(self, size_bytes: int) -> None:
        """Add bytes. Raises GATEWAY_FULL as `Budget.take` does."""
        self._budget.take(size_bytes)

    def give_back(self, size_bytes: int) -> None:
        self._budget.give_back(size_bytes)
