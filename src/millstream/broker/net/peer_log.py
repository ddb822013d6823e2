"""Logs misbehaving peers, each peer and event at most once a minute, with the number of repetitions."""

import logging

from millstream.process.client_events import Caller, caller_fields
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

    def note(self, peer: str, event: str, why: str, *, client: Caller | None = None) -> None:
        """Log an event of `peer` (a host without port), unless it was logged within the last minute.

        The line has the port and the client id of `client`, if it is known.
        """
        since = self._limiter.admit((peer, event), self._clock.monotonic_s())
        if since is None:
            return
        if overflow := self._limiter.take_overflow():
            _log.warning("further connection errors not logged", extra={"count": overflow})
        where: dict[str, object] = {"peer": peer} if client is None else caller_fields(client)
        fields = {**where, "error": why}
        if since:
            fields["times_since_last_log"] = since
        _log.warning(event, extra=fields)
