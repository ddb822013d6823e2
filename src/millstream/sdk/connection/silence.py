"""Detects brokers that accept connections and requests but do not respond, such as a stopped process.

A connection to such a broker stays open, so only its pending requests show the outage. A watch runs while a connection
has pending requests. An idle connection has no timer. `health()` sends a probe on it, whose missing response shows the
outage.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.outage import WARN_AFTER_S, OutageWatch
from millstream.sdk.requests import metadata

if TYPE_CHECKING:
    from millstream.sdk.connection.connection import BrokerConnection

CHECK_S = 1.0
"""The interval of checks while requests are pending."""


class SilenceWatch:
    """Reports an outage when one connection has received nothing for `WARN_AFTER_S`, although a response is due."""

    def __init__(self, address: Address, outages: OutageWatch, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the broker responds again."""
        self.is_watching = False
        """True while a check is scheduled."""
        self.is_silent = False
        self._address = address
        self._outages = outages
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._receives = 0
        self._heard_s = 0.0
        """The time before which the connection has received something, or had no pending request."""

    def watch(self, connection: "BrokerConnection") -> None:
        """Begin to watch a connection that was idle and has sent a request."""
        assert not self.is_watching, "a connection has one watch"
        self.is_watching = True
        self._receives, self._heard_s = connection.receives, self._loop.time()
        self._timer = self._loop.call_later(CHECK_S, self._check, connection)

    def close(self) -> None:
        """End the watch: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Report that the broker responds again."""
        self.is_silent = False
        self._on_end()

    def _check(self, connection: "BrokerConnection") -> None:
        now_s, oldest = self._loop.time(), connection.oldest
        if oldest is None:
            self.is_watching = self.is_silent = False
            return
        if connection.receives != self._receives:
            self._receives, self._heard_s = connection.receives, now_s
        since_s = max(self._heard_s, oldest.sent_s + oldest.request.wait_s)
        left_s = since_s + WARN_AFTER_S - now_s
        if left_s <= 0:
            self.is_silent = True
            text = f"{self._address} has not answered {oldest.request.api.name} for {now_s - since_s:.0f} s"
            self._outages.silent(self._address, since_s, MillstreamError(ErrorCode.NETWORK_EXCEPTION, text))
        self._timer = self._loop.call_later(min(CHECK_S, left_s) if left_s > 0 else CHECK_S, self._check, connection)


def probe(connections: Iterable["BrokerConnection"], timeout_s: float) -> None:
    """Send a small request on each idle connection, which begins its watch. The response is ignored."""
    for connection in connections:
        if connection.is_idle:
            connection.post(metadata([], auto_create=False), timeout_s).add_done_callback(_ignore)


def _ignore(answer: asyncio.Future[Any]) -> None:
    """Retrieve the response's exception, so that asyncio does not log it as never retrieved."""
    if not answer.cancelled():
        answer.exception()
