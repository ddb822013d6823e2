"""What one call, one connection and all of them together may take."""

from typing import NamedTuple


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
