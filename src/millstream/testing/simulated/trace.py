"""Records the events of a simulated run in one digest. Two runs are identical exactly if their digests are equal."""

from collections import deque
from collections.abc import Callable
from hashlib import blake2b

Value = str | int | float | bytes | None


class Trace:
    """Collects events in order, and keeps the last ones as text for failure reports."""

    def __init__(self, *, kept: int = 200, listener: Callable[[str], None] | None = None) -> None:
        self._digest = blake2b(digest_size=16)
        self._listener = listener
        self.last: deque[str] = deque(maxlen=kept)
        self.count = 0

    def note(self, time_s: float, event: str, *values: Value) -> None:
        """Add one event; the digest depends on the time, on each value and on the order."""
        line = f"{time_s:.9f} {event} {' '.join(map(repr, values))}"
        self._digest.update(f"{line}\n".encode())
        self.last.append(line)
        self.count += 1
        if self._listener is not None:
            self._listener(line)

    def digest(self) -> str:
        return self._digest.hexdigest()
