"""Finds clients that reconnect in a loop, for example because each of their requests closes the connection.

A connection is a reconnect if another one of the same host has ended before, within the same minute. Many clients that
start at the same time are thus no loop. Only the most recent hosts are remembered.

Invariants: at most `HOSTS_MAX` hosts are remembered. A host has no more reconnects in a minute than ended connections.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable

from millstream.broker.net.client_info import ClientInfo
from millstream.broker.net.close_reasons import CloseReason
from millstream.process.findings import Finding
from millstream.process.log_limiter import LogLimiter
from millstream.seams.clock import Clock

PERIOD_S = 60.0
RECONNECTS_MAX = 60
"""Reconnects of a host within `PERIOD_S` that are not reported."""

HOSTS_MAX = 1_000
NAMES_MAX = 10
"""Hosts that the health page names."""

_log = logging.getLogger("millstream.broker")


class _Host:
    """The connections of one host in the minute that began with its first connection."""

    __slots__ = ("begun_s", "client_id", "closed", "looping_s", "opened_s", "reason", "reconnects")

    def __init__(self, now_s: float) -> None:
        self.looping_s: float | None = None
        """The time when the reconnects of a minute last exceeded the limit."""
        self.client_id: str | None = None
        self.reason = CloseReason.CLIENT
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Begin another minute."""
        self.begun_s = self.opened_s = now_s
        self.closed = self.reconnects = 0

    def opened(self, now_s: float) -> bool:
        """Count a connection. Returns True if it is the first one over the limit."""
        self.opened_s = now_s
        if self.closed <= self.reconnects:
            return False
        self.reconnects += 1
        if self.reconnects != RECONNECTS_MAX + 1:
            return False
        self.looping_s = now_s
        return True

    def ended(self, client_id: str | None, reason: CloseReason) -> None:
        self.closed += 1
        assert self.reconnects <= self.closed, "a reconnect follows the end of a connection"
        self.client_id, self.reason = client_id, reason

    def is_looping(self, now_s: float) -> bool:
        """True from the first minute over the limit until a minute without connections, or one below the limit."""
        return self.looping_s is not None and now_s - self.looping_s < 2 * PERIOD_S and now_s - self.opened_s < PERIOD_S


class Reconnects:
    """Counts the connections by host, and reports the hosts that reconnect often."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hosts: OrderedDict[str, _Host] = OrderedDict()
        self._limiter = LogLimiter(PERIOD_S, keys_max=HOSTS_MAX)

    def opened(self, host: str) -> None:
        """Count an accepted connection. Logs a warning if the host reconnects often, at most once a minute."""
        now_s, known = self._clock.monotonic_s(), self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = _Host(now_s)
            if len(self._hosts) > HOSTS_MAX:
                self._hosts.popitem(last=False)
            assert len(self._hosts) <= HOSTS_MAX, "the oldest host makes room for a new one"
        else:
            self._hosts.move_to_end(host)
            if now_s - known.begun_s >= PERIOD_S:
                known.begin(now_s)
        if known.opened(now_s) and self._limiter.admit(host, now_s) is not None:
            _log.warning("client reconnects often", extra=_fields(host, known, now_s))

    def ended(self, peer: ClientInfo, reason: CloseReason) -> None:
        """Count the end of a connection."""
        known = self._hosts.get(peer.address)
        if known is not None:
            known.ended(peer.client_id, reason)

    def findings(self) -> Iterable[Finding]:
        """Yield a warning for each host that reconnects often."""
        now_s = self._clock.monotonic_s()
        looping = [(host, known) for host, known in self._hosts.items() if known.is_looping(now_s)]
        for host, known in looping[:NAMES_MAX]:
            yield Finding(_sentence(host, known), is_problem=False)
        if len(looping) > NAMES_MAX:
            yield Finding(f"{len(looping) - NAMES_MAX} further clients reconnect often", is_problem=False)


def _fields(host: str, known: _Host, now_s: float) -> dict[str, object]:
    fields: dict[str, object] = {"peer": host}
    if known.client_id is not None:
        fields["client_id"] = known.client_id
    within_s = round(now_s - known.begun_s, 1)
    return {**fields, "count": known.reconnects, "within_s": within_s, "last_reason": known.reason.value}


def _sentence(host: str, known: _Host) -> str:
    client = "" if known.client_id is None else f" (client id {known.client_id!r})"
    return (
        f"client {host}{client} reconnects more than {RECONNECTS_MAX} times a minute; its last connection ended with"
        f" the reason {known.reason.value!r}"
    )
