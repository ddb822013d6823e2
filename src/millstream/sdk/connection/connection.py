"""Runs one connection to a broker: connects the protocol core to the network seam, with a future per request."""

import asyncio
import logging
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from millstream.model.errors import ErrorCode, MillstreamError, UnreachableError
from millstream.process.log_event import LogEvent
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.silence import SilenceWatch
from millstream.sdk.metrics import NO_METRICS, Metrics
from millstream.seams.network import Network
from millstream.seams.receive_pace import Pace
from millstream.wire.client_connection import Api, ApiRequest, ConnectionCore, Event, FurtherFrame, Ready

T = TypeVar("T")

_log = logging.getLogger("millstream.sdk.connection")


class ConnectionLostError(UnreachableError):
    """The connection ended before the response arrived, so the outcome of the request is unknown."""


class PendingRequest(NamedTuple):
    future: asyncio.Future[Any]
    sent_s: float
    request: ApiRequest[Any]


class BrokerConnection(asyncio.BufferedProtocol):
    """Sends requests immediately and receives the responses in order. All pending requests fail at its end.

    A caller may cancel early; its late response is discarded. If the oldest request has no response after `overdue_s`,
    the connection is closed: later responses would not arrive either, and a new connection is cheap.
    """

    def __init__(
        self,
        core: ConnectionCore,
        address: str,
        overdue_s: float,
        metrics: Metrics = NO_METRICS,
        on_lost: Callable[[], None] | None = None,
        silence: SilenceWatch | None = None,
    ) -> None:
        """`on_lost` is called when the connection ends after it was ready, unless this side closed it."""
        self.address = address
        self.receives = 0
        """Number of times that bytes arrived."""
        self._silence = silence
        self._metrics = metrics
        self._overdue_s = overdue_s
        self._on_lost = on_lost
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pace: Pace | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._waiting: dict[int, PendingRequest] = {}
        self._standing: dict[int, Callable[[Any], None]] = {}
        self._room: asyncio.Future[None] | None = None
        self._end: MillstreamError | None = None

    @property
    def closed(self) -> bool:
        return self._end is not None

    def serves(self, api: Api) -> bool:
        """Return True if the broker supports any version of this API."""
        return self._core.serves(api)

    @property
    def waiting(self) -> int:
        """Number of requests without a response."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """True if no request was sent in the last second, so that nothing shows whether the broker responds."""
        return self._end is None and self._silence is not None and not self._silence.is_watching

    @property
    def oldest(self) -> PendingRequest | None:
        """The oldest request without a response; its response arrives first."""
        return next(iter(self._waiting.values()), None)

    async def request(self, request: ApiRequest[T], timeout_s: float) -> T:
        """Send a request and return the response; raises the broker's error, a lost connection or a timeout."""
        if self._room is not None:
            await self._wait_for_room(timeout_s)
        answer = await self.post(request, timeout_s)
        if isinstance(answer, MillstreamError):
            raise answer
        return answer

    async def stand(
        self, request: ApiRequest[T], timeout_s: float, deliver: Callable[[T | MillstreamError], None]
    ) -> tuple[int, T]:
        """Send a standing request, which gets many responses; returns its correlation id and the first response.

        `deliver` is called with each further response, possibly before this call returns, and finally with the error
        that ended the connection. Raises the errors of `request`; after an error the request does not stand.
        """
        answering = self.post(request, timeout_s)
        correlation_id = next(reversed(self._waiting))
        self._standing[correlation_id] = deliver
        try:
            answer = await answering
            if isinstance(answer, MillstreamError):
                raise answer
        except BaseException:
            self.forget(correlation_id)
            raise
        return correlation_id, answer

    def forget(self, correlation_id: int) -> None:
        """End a standing request; its further responses are ignored."""
        self._standing.pop(correlation_id, None)
        self._core.forget(correlation_id)

    def post(self, request: ApiRequest[T], timeout_s: float) -> asyncio.Future[T | MillstreamError]:
        """Send a request without waiting for room; raises if the connection has ended.

        The future has the response, the broker's error as a value, or ConnectionLostError as its exception."""
        if self._end is not None:
            raise MillstreamError(self._end.code, self._end.detail)
        future: asyncio.Future[T | MillstreamError] = self._loop.create_future()
        correlation_id = self._core.send(request)
        if request.answered:
            self._waiting[correlation_id] = PendingRequest(future, self._loop.time(), request)
            timer = self._loop.call_later(timeout_s, self._give_up, future, request.api.name, timeout_s)
            future.add_done_callback(lambda _: timer.cancel())
            if self._silence is not None and not self._silence.is_watching:
                self._silence.watch(self)
        else:
            future.set_result(cast("T", None))
        self._flush()
        return future

    @property
    def room(self) -> asyncio.Future[None] | None:
        """A future that completes when the send buffer has room again; None while it has room."""
        return self._room

    def close(self) -> None:
        """Close the connection after its buffer is sent; pending requests fail."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        self._finish(ErrorCode.NETWORK_EXCEPTION, f"the connection to {self.address} was closed")

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._pace = Pace(transport)
        self._core.greet()
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._core.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.receives += 1
        if self._silence is not None and self._silence.is_silent:
            self._silence.end()
        try:
            events = self._core.received(nbytes)
        except MillstreamError as error:
            # Before the first response the peer is not a broker, which is final. Later, a reconnect may help.
            code = ErrorCode.NETWORK_EXCEPTION if self._ready.done() else error.code
            self._finish(code, f"{self.address}: {error.detail}")
            return
        for event in events:
            self._handle(event)
        self._flush()
        if self._pace is not None and self._end is None:
            self._pace.set(self._core.missing_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {_reason(exc)}" if exc else ""
        self._finish(ErrorCode.NETWORK_EXCEPTION, f"the connection to {self.address} was lost{why}")

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    async def _wait_for_room(self, timeout_s: float) -> None:
        """Wait until the broker has read enough of the send buffer."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._room is not None:
                    await asyncio.shield(self._room)
        except TimeoutError:
            self._end_if_overdue()
            text = f"{self.address} read no data for {_rounded(timeout_s)} s"
            raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, text) from None

    def _handle(self, event: Event) -> None:
        if isinstance(event, Ready):
            if not self._ready.done():
                self._ready.set_result(None)
            return
        if isinstance(event, FurtherFrame):
            deliver = self._standing.get(event.correlation_id)
            if deliver is not None:
                deliver(event.value)
            return
        waiting = self._waiting.pop(event.correlation_id)
        future = waiting.future
        if self._metrics is not NO_METRICS:
            self._report(waiting, event.value)
        if not future.done():  # The caller may have timed out or been cancelled.
            future.set_result(event.value)

    def _report(self, waiting: PendingRequest, answer: object) -> None:
        labels = {"broker": self.address, "api": waiting.request.api.name}
        self._metrics.observe("request_seconds", self._loop.time() - waiting.sent_s, labels)
        if isinstance(answer, MillstreamError):
            self._metrics.count("requests_refused", 1, {**labels, "error": answer.code.name})

    def _flush(self) -> None:
        outgoing = self._core.take_outgoing()
        if outgoing and self._transport is not None:
            self._transport.writelines(outgoing)

    def _give_up(self, future: asyncio.Future[Any], name: str, timeout_s: float) -> None:
        if not future.done():
            text = f"{self.address} did not answer {name} in {_rounded(timeout_s)} s; the outcome is unknown"
            future.set_exception(ConnectionLostError(ErrorCode.REQUEST_TIMED_OUT, text))
        self._end_if_overdue()

    def _end_if_overdue(self) -> None:
        oldest = self.oldest
        if oldest is not None and self._loop.time() - oldest.sent_s >= self._overdue_s:
            text = f"the connection to {self.address} was closed: no response for {self._overdue_s:g} s"
            self._finish(ErrorCode.NETWORK_EXCEPTION, text)

    def _finish(self, code: ErrorCode, detail: str) -> None:
        """End the connection and fail all pending requests. Later calls do nothing."""
        if self._end is not None:
            return
        self._end = MillstreamError(code, detail)
        self._core.close()
        if self._silence is not None:
            self._silence.close()
        self.resume_writing()
        waiting, self._waiting = self._waiting, {}
        if self._ready.done():
            self._report_end(len(waiting))
        for future in (self._ready, *(each.future for each in waiting.values())):
            if not future.done():
                future.set_exception(ConnectionLostError(code, detail))
        standing, self._standing = self._standing, {}
        for deliver in standing.values():
            deliver(ConnectionLostError(code, detail))
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # Marks it as retrieved: the caller that opened the connection may be cancelled.
        if self._transport is not None:
            self._transport.abort()

    def _report_end(self, unanswered: int) -> None:
        labels = {"broker": self.address}
        if self._transport is None:
            _log.debug(LogEvent("connection closed", **labels))
        else:
            _log.info(LogEvent("connection lost", **labels, unanswered_requests=unanswered, error=self._end))
            self._metrics.count("connections_lost", 1, labels)
            if self._on_lost is not None:
                self._on_lost()
        if unanswered:
            self._metrics.count("requests_lost", unanswered, labels)


async def connect(
    network: Network,
    address: Address,
    make_core: Callable[[], ConnectionCore],
    *,
    timeout_s: float,
    overdue_s: float,
    metrics: Metrics = NO_METRICS,
    on_lost: Callable[[], None] | None = None,
    silence: SilenceWatch | None = None,
) -> BrokerConnection:
    """Connect and request the broker's API versions; raises NETWORK_EXCEPTION with the reason."""
    connection: BrokerConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            protocol = await network.connect(
                lambda: BrokerConnection(make_core(), str(address), overdue_s, metrics, on_lost, silence), *address
            )
            connection = cast("BrokerConnection", protocol)
            await connection._ready
    except TimeoutError:
        _close(connection)
        raise not_answered(address, timeout_s) from None
    except (OSError, UnicodeError) as error:  # UnicodeError: the resolver refuses some host names.
        _close(connection)
        raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"{address} cannot be reached: {_reason(error)}") from error
    except ConnectionLostError as error:
        raise MillstreamError(error.code, error.detail) from error  # No request was sent, so no outcome is unknown.
    except BaseException:
        _close(connection)
        raise
    return connection


def not_answered(address: Address, timeout_s: float) -> MillstreamError:
    """Return the error for a broker that did not answer a connection attempt in time."""
    return MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"{address} did not answer in {_rounded(timeout_s)} s")


def _close(connection: BrokerConnection | None) -> None:
    if connection is not None:
        connection.close()


def _rounded(seconds: float) -> str:
    """Format a duration, rounded because the rest of a deadline is slightly less than the configured timeout."""
    return f"{seconds:.1f}".removesuffix(".0") if seconds >= 1 else f"{seconds:.2g}"


def _reason(error: BaseException) -> str:
    """Return the operating system's text for an error. asyncio's text repeats the address."""
    if isinstance(error, OSError):
        number = error.errno or _first_number(str(error))
        if number and number < 0:  # Negative numbers are the resolver's, which os.strerror does not know.
            return (error.strerror or "the host name cannot be resolved").lower()
        if number:
            return os.strerror(number).lower()
    return str(error) or type(error).__name__


def _first_number(text: str) -> int | None:
    """Return the first error number in asyncio's text about a host with several unreachable addresses."""
    found = re.search(r"\[Errno (\d+)\]", text)
    return int(found[1]) if found else None
