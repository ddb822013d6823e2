"""Defines the limits of a call, of a connection and of all calls together."""

from typing import NamedTuple

from millstream.gateway.budget import Budget
from millstream.gateway.failures import invalid
from millstream.gateway.operations.answer_limit import MESSAGE_BYTES, AnswerLimit
from millstream.gateway.operations.reads import ReadLimits
from millstream.records.message import Message
from millstream.sdk.watching.read_result import size_of


class GrpcLimits(NamedTuple):
    """Limits of the gRPC server."""

    request_bytes: int = 16 * 1024 * 1024
    """Largest request after decompression."""
    events: int = 10_000
    """Most events in one request."""
    messages: int = 100_000
    """Most messages in one answer."""
    answer_bytes: int = 16 * 1024 * 1024
    """Approximate size of the largest answer."""
    wait_s: float = 60.0
    """Longest wait of a poll."""
    batches: int = 64
    """Most unacknowledged batches of one write stream."""
    calls: int = 20_000
    """Most calls in progress."""
    calls_per_connection: int = 10_000


_DEFAULTS = ReadLimits()


def encoded_size(message: Message) -> int:
    """Return the approximate size of a message in a response."""
    return size_of(message) + MESSAGE_BYTES


class ReadingLimits:
    """Checks the size and wait parameters of read requests and applies their defaults."""

    def __init__(self, limits: GrpcLimits, budget: Budget) -> None:
        self.wait_s = limits.wait_s
        self._answer = AnswerLimit(budget.answer_bytes_max, 1, encoded_size)
        self._messages = limits.messages
        self._bytes = limits.answer_bytes

    def of(self, max_messages: int, *, max_bytes: int, wait_s: float, skip_bad_batches: bool = False) -> ReadLimits:
        """Return the limits for one read; 0 selects the default.

        Raises INVALID_REQUEST, naming the field, for a value above the maximum.
        """
        for name, requested, most in (
            ("max_messages", max_messages, self._messages),
            ("max_bytes", max_bytes, self._bytes),
        ):
            if not 0 <= requested <= most:
                raise invalid(name, f"{requested} is not between 0 and {most}")
        return ReadLimits(
            max_messages or _DEFAULTS.max_messages,
            max_bytes or _DEFAULTS.max_bytes,
            wait_s,
            "skip" if skip_bad_batches else "raise",
            self._answer,
        )

    def wait_of(self, wait_ms: int | None) -> float:
        """Return the wait of a request in seconds. Raises INVALID_REQUEST for a wait above the maximum."""
        if wait_ms is None:
            return _DEFAULTS.wait_s
        if not 0 <= wait_ms <= self.wait_s * 1000:
            raise invalid("wait_ms", f"{wait_ms} is not between 0 and {self.wait_s * 1000:.0f}")
        return wait_ms / 1000
