"""Log lines about misbehaving peers: each peer and reason once, then only how often it happened since.

Bounded both ways: neither a flood from one peer nor a flood of peers becomes a flood of lines, or of memory.
"""

import logging
from collections import OrderedDict

from millstream.seams.clock import Clock

QUIET_S = 60.0
PEERS_MAX = 1_000
LINES_MAX = 50
"""Lines within `QUIET_S`, over all peers."""

_log = logging.getLogger("millstream.broker")


class PeerLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        self._period_began = -QUIET_S
        self._lines = 0
        self._unsaid = 0

    def note(self, peer: str, event: str, why: str) -> None:
        """Say that `event` happened to `peer` (a host, without its port), unless that was said within the minute."""
        now = self._clock.monotonic_s()
        key = (peer, event)
        said_at, since = self._seen.get(key, (-QUIET_S, 0))
        if now - said_at < QUIET_S:
            self._seen[key] = (said_at, since + 1)
            return
        if not self._has_room(now):
            return
        fields: dict[str, object] = {"peer": peer, "why": why}
        if since:
            fields["times_since_last_said"] = since
        self._seen[key] = (now, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > PEERS_MAX:
            self._seen.popitem(last=False)
        _log.warning(event, extra=fields)

    def _has_room(self, now: float) -> bool:
        """Whether one more line may be written in this period; a new one begins with what the last left unsaid."""
        if now - self._period_began >= QUIET_S:
            if self._unsaid:
                _log.warning("more connections were cut off than are logged one by one", extra={"times": self._unsaid})
            self._period_began, self._lines, self._unsaid = now, 0, 0
        if self._lines >= LINES_MAX:
            self._unsaid += 1
            return False
        self._lines += 1
        return True
