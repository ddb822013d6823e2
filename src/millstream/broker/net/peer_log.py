"""Logs misbehaving peers, each peer and event at most once a minute, with the number of repetitions."""

import logging

from millstream.process.log_limiter import LogLimiter
from millstream.seams.clock import Clock

QUIET_S = 60.0
PEERS_MAX = 1_000
LINES_MAX = 50
"""Maximum number of log lines of all peers within `QUIET_S`."""

_log = logging.getLogger("millstream.broker")


class PeerLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limiter = LogLimiter(QUIET_S, keys_max=PEERS_MAX, lines_max=LINES_MAX)

    def note(self, peer: str, event: str, why: str) -> None:
        """Log an event of `peer` (a host without port), unless it was logged within the last minute."""
        since = self._limiter.admit((peer, event), self._clock.monotonic_s())
        if since is None:
            return
        if overflow := self._limiter.take_overflow():
            _log.warning("further connection errors not logged", extra={"count": overflow})
        fields: dict[str, object] = {"peer": peer, "error": why}
        if since:
            fields["times_since_last_log"] = since
        _log.warning(event, extra=fields)
