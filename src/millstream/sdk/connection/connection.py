"""One connection to one broker: the protocol core on the network seam, a future for each answer."""

import asyncio
import logging
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.address import Address
from millstream.sdk.metrics import NO_METRICS, Metrics
from millstream.seams.network import Network
from millstream.seams.receive_pace import Pace
from millstream.wire.client_connection import Api, ApiRequest, ConnectionCore, Event, FurtherFrame, Ready

T = TypeVar("T")

_log = logging.getLogger("millstream.sdk.connection")


class ConnectionLostError(MillstreamError):
    """The connection ended, or was ended, with the answer outstanding: what became of the request is not known."""


class _Waiting(NamedTuple):
    future: asyncio.Future[Any]
    sent_s: float
    api: str


class BrokerConnection(asyncio.BufferedProtocol):
    """Requests are sent at once and answered in order; when the connection ends, every waiting request fails.

    Whoever asked may give up early, and the late answer is thrown away. But a connection whose oldest question has
    waited for `overdue_s` is taken for dead: the answers behind it would not come either, and a new one is cheap.
    """

    def __init__(self, core: ConnectionCore, address: str, overdue_s: float, metrics: Metrics = NO_METRICS) -> None:
        self.address = address
        self._metrics = metrics
        self._overdue_s = overdue_s
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pace: Pace | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._waiting: dict[int, _Waiting] = {}
        self._standing: dict[int, Callable[[Any], None]] = {}
        self._room: asyncio.Future[None] | None = None
        self._end: MillstreamError | None = None

    @classmethod
    async def open(
        cls,
        network: Network,
        address: Address,
        make_core: Callable[[], ConnectionCore],
        *,
        timeout_s: float,
        overdue_s: float,
        metrics: Metrics = NO_METRICS,
    ) -> "BrokerConnection":
        """Connect and learn the broker's versions; NETWORK_EXCEPTION, saying why, when that does not work in time."""
        connection: BrokerConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                protocol = await network.connect(lambda: cls(make_core(), str(address), overdue_s, metrics), *address)
                connection = cast("BrokerConnection", protocol)
                await connection._ready
        except TimeoutError:
            _close(connection)
            raise not_answered(address, timeout_s) from None
        except (OSError, UnicodeError) as error:  # The resolver has its own opinion of what can be a host's name.
            _close(connection)
            raise MillstreamError(
                ErrorCode.NETWORK_EXCEPTION, f"{address} cannot be reached: {_reason(error)}"
            ) from error
        except ConnectionLostError as error:
            raise MillstreamError(error.code, error.detail) from error  # Nothing was asked yet, so nothing is in doubt.
        except BaseException:
            _close(connection)
            raise
        return connection

    @property
    def closed(self) -> bool:
        return self._end is not None

    def serves(self, api: Api) -> bool:
        """Whether the broker at the other end has this API at all."""
        return self._core.serves(api)

    @property
    def waiting(self) -> int:
        """How many requests wait for their answers."""
        return len(self._waiting)

    async def request(self, request: ApiRequest[T], timeout_s: float) -> T:
        """Send, and give the answer; a broker's refusal, a lost connection or the time being over is raised."""
        if self._room is not None:
            await self._wait_for_room(timeout_s)
        answer = await self.post(request, timeout_s)
        if isinstance(answer, MillstreamError):
            raise answer
        return answer

    async def stand(
        self, request: ApiRequest[T], timeout_s: float, deliver: Callable[[T | MillstreamError], None]
    ) -> tuple[int, T]:
        """Send what stands; its correlation id and its answer. Raises as `request` does, and then it does not stand.

        `deliver` is called with whatever follows, perhaps before this returns, and last with the connection's end.
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
        """What stood is over."""
        self._standing.pop(correlation_id, None)
        self._core.forget(correlation_id)

    def post(self, request: ApiRequest[T], timeout_s: float) -> asyncio.Future[T | MillstreamError]:
        """Send now, whether or not there is room. The future has the answer, the broker's refusal as a value, or
        ConnectionLostError; a connection that has ended already raises."""
        if self._end is not None:
            raise MillstreamError(self._end.code, self._end.detail)
        future: asyncio.Future[T | MillstreamError] = self._loop.create_future()
        correlation_id = self._core.send(request)
        if request.answered:
            self._waiting[correlation_id] = _Waiting(future, self._loop.time(), request.api.name)
            timer = self._loop.call_later(timeout_s, self._give_up, future, request.api.name, timeout_s)
            future.add_done_callback(lambda _: timer.cancel())
        else:
            future.set_result(cast("T", None))
        self._flush()
        return future

    @property
    def room(self) -> asyncio.Future[None] | None:
        """Done when the broker takes data again; None while it does."""
        return self._room

    def close(self) -> None:
        """End the connection once all is sent that was given to it; what still waits for an answer fails."""
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
        try:
            events = self._core.received(nbytes)
        except MillstreamError as error:
            # A peer that never spoke our language will not learn it; one that lost step may be asked afresh.
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
        """Hold back while the broker does not take what was sent before."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._room is not None:
                    await asyncio.shield(self._room)
        except TimeoutError:
            self._end_if_overdue()
            text = f"{self.address} took no data for {_rounded(timeout_s)} s"
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
        if not future.done():  # Somebody who no longer waits does not mind the answer.
            future.set_result(event.value)

    def _report(self, waiting: _Waiting, answer: object) -> None:
        labels = {"broker": self.address, "api": waiting.api}
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
        oldest = next(iter(self._waiting.values()), None)
        if oldest is not None and self._loop.time() - oldest.sent_s >= self._overdue_s:
            text = f"the connection to {self.address} was given up: it has not answered for {self._overdue_s:g} s"
            self._finish(ErrorCode.NETWORK_EXCEPTION, text)

    def _finish(self, code: ErrorCode, detail: str) -> None:
        """End the connection, once, and fail what waits."""
        if self._end is not None:
            return
        self._end = MillstreamError(code, detail)
        self._core.close()
        self.resume_writing()
        waiting, self._waiting = self._waiting, {}
        if self._ready.done():
            self._tell_of_end(len(waiting))
        for future in (self._ready, *(each.future for each in waiting.values())):
            if not future.done():
                future.set_exception(ConnectionLostError(code, detail))
        standing, self._standing = self._standing, {}
        for deliver in standing.values():
            deliver(ConnectionLostError(code, detail))
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # Marks it as seen: whoever opened the connection may be gone.
        if self._transport is not None:
            self._transport.abort()

    def _tell_of_end(self, unanswered: int) -> None:
        labels = {"broker": self.address}
        if self._transport is None:
            _log.debug("%s", self._end)
        else:
            _log.info("%s; %d requests were not answered", self._end, unanswered)
            self._metrics.count("connections_lost", 1, labels)
        if unanswered:
            self._metrics.count("requests_lost", unanswered, labels)


def not_answered(address: Address, timeout_s: float) -> MillstreamError:
    """For a broker that could not be connected to in time."""
    return MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"{address} did not answer in {_rounded(timeout_s)} s")


def _close(connection: BrokerConnection | None) -> None:
    if connection is not None:
        connection.close()


def _rounded(seconds: float) -> str:
    """A time as a person would say it: what is left of a deadline is a hair less than what was asked for."""
    return f"{seconds:.1f}".removesuffix(".0") if seconds >= 1 else f"{seconds:.2g}"


def _reason(error: BaseException) -> str:
    """An operating system's error in its own words: asyncio's hide them behind the address, which is known here."""
    if isinstance(error, OSError):
        number = error.errno or _first_number(str(error))
        if number and number < 0:  # The resolver's numbers are not the kernel's; it has words of its own.
            return (error.strerror or "the host's name cannot be resolved").lower()
        if number:
            return os.strerror(number).lower()
    return str(error) or type(error).__name__


def _first_number(text: str) -> int | None:
    """The error number in asyncio's text for a host with several addresses, none of which answered."""
    found = re.search(r"\[Errno (\d+)\]", text)
    return int(found[1]) if found else None
