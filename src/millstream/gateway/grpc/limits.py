"""What one call, one connection and all of them together may take."""

from typing import NamedTuple

from millstream.gateway.failures import invalid
from millstream.gateway.operations.reads import ReadLimits


class GrpcLimits(NamedTuple):
    request_bytes: int = 16 * 1024 * 1024
    """Largest request, unpacked if it came compressed."""
    events: int = 10_000
    """Most events in one request."""
    messages: int = 100_000
    """Most messages in one answer."""
    answer_bytes: int = 16 * 1024 * 1024
    """About the largest answer."""
    wait_s: float = 60.0
    """Longest wait of a poll."""
    batches: int = 64
    """Most batches of one stream that are written and not yet acknowledged."""
    calls: int = 20_000
    """Most calls under way."""
    calls_per_connection: int = 10_000


_UNLESS_SAID = ReadLimits()


class ReadingLimits:
    """What requests to read may ask for."""

    def __init__(self, limits: GrpcLimits) -> None:
        self.wait_s = limits.wait_s
        self._messages = limits.messages
        self._bytes = limits.answer_bytes

    def of(self, max_messages: int, max_bytes: int, wait_s: float) -> ReadLimits:
        """INVALID_REQUEST, naming the field, for more than an answer may bring; 0 leaves it to the gateway."""
        for name, asked, most in (
            ("max_messages", max_messages, self._messages),
            ("max_bytes", max_bytes, self._bytes),
        ):
            if not 0 <= asked <= most:
                raise invalid(name, f"{asked} is not between 0 and {most}")
        return ReadLimits(max_messages or _UNLESS_SAID.max_messages, max_bytes or _UNLESS_SAID.max_bytes, wait_s)

    def wait_of(self, wait_ms: int | None) -> float:
        """How long a request wants to wait, in seconds; INVALID_REQUEST for longer than any may."""
        if wait_ms is None:
            return _UNLESS_SAID.wait_s
        if not 0 <= wait_ms <= self.wait_s * 1000:
            raise invalid("wait_ms", f"{wait_ms} is not between 0 and {self.wait_s * 1000:.0f}")
        return wait_ms / 1000
