"""Log lines about misbehaving peers: each peer and reason once, then only how often it happened since.

Bounded, so that a flood of peers does not become a flood of memory or of lines.
"""

import logging
from collections import OrderedDict

from penstock.model.clock import Clock

QUIET_S = 60.0
PEERS_MAX = 1_000

_log = logging.getLogger("penstock.broker")


class PeerLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def note(self, peer: str, event: str, why: str) -> None:
        """Say that `event` happened to `peer` (a host, without its port), unless that was said within the minute."""
        now = self._clock.monotonic_s()
        key = (peer, event)
        said_at, since = self._seen.get(key, (-QUIET_S, 0))
        if now - said_at < QUIET_S:
            self._seen[key] = (said_at, since + 1)
            return
        fields: dict[str, object] = {"peer": peer, "why": why}
        if since:
            fields["times_since_last_said"] = since
        self._seen[key] = (now, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > PEERS_MAX:
            self._seen.popitem(last=False)
        _log.warning(event, extra=fields)
