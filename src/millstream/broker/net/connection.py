"""Connects one client connection to its dispatcher: receives frames, sends responses, controls the flow, closes.

Frames are passed to the dispatcher. Responses go to the outbox in the order of the requests.

A request that must wait for changes of earlier ones (see `millstream.broker.dispatch.open_changes`) stays with the
received frames. No frame is dispatched and nothing is read meanwhile.

Limits per connection: with too many pending requests (see `millstream.broker.dispatch.response_queue`) it stops
reading. With too many unsent bytes (the transport's high-water mark) it stops dispatching. A peer that stops in the
middle of a frame, or takes no byte of its responses, is disconnected.
"""

import asyncio
import logging
from typing import cast

from millstream.broker.dispatch.dispatcher import Dispatcher, UnservedRequestError
from millstream.broker.dispatch.request import CloseConnectionError
from millstream.broker.dispatch.response_queue import ResponseQueue
from millstream.broker.dispatch.work_runner import WorkRunner
from millstream.broker.net.client_info import ClientInfo
from millstream.broker.net.close_reasons import CloseReason
from millstream.broker.net.frame_progress import FrameProgress
from millstream.broker.net.listener_state import ListenerState
from millstream.broker.net.outbox import READER_SILENCE_S, Outbox
from millstream.broker.net.receiver import Receiver, TlsClientError
from millstream.broker.net.stream_channel import StreamChannel
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.client_events import caller_fields
from millstream.process.tls_detection import EVENT as TLS_EVENT
from millstream.wire.malformed import MalformedMessageError

FRAME_SILENCE_S = 30.0

_FAILED_WITHOUT_RESPONSE = "connection closed: a request that has no response failed"
_log = logging.getLogger("millstream.broker")


class ClientConnection(asyncio.BufferedProtocol):
    _reason = CloseReason.CLIENT
    """The reason of the close, for the metrics. Only a connection that the broker closes has a value of its own."""

    def __init__(self, shared: ListenerState) -> None:
        self._shared = shared
        self._transport: asyncio.Transport | None = None
        self._peer = ClientInfo()
        self._receiver = Receiver(shared.staging, shared.memory, self._go_on, shared.table.bytes_max)
        self._outbox = Outbox(shared.memory, shared.workers, self)
        fail = self._fail
        runner = WorkRunner(shared.tasks, fail, self._peer)
        self._channel = StreamChannel(self._outbox, runner, fail)
        self._responses = ResponseQueue(
            shared.memory,
            self._outbox,
            self._channel.open_requests,
            runner,
            now_s=shared.now_s,
            answered=self._answered,
            fail=fail,
        )
        self._dispatcher = Dispatcher(
            shared.table, shared.memory, self._peer, self._channel, self._responses, shared.now_s
        )
        self._progress = FrameProgress()
        self._reading = True
        self._dispatching = False
        self._draining = False
        self._is_over = False

    # The transport's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from asyncio.Transport
        self._transport = transport
        self._outbox.open(transport)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple) and address:
            self._peer.connected(str(address[0]), address[1])
        if self._shared.lacks_descriptors(transport):
            self._shared.refused(self._peer.address)
            self._abort(CloseReason.REFUSED)
            return
        self._shared.accepted(self, self._peer)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        receiver = self._receiver
        try:
            receiver.received(nbytes)
        except MalformedMessageError as error:
            if isinstance(error, TlsClientError):
                self._cut(CloseReason.TLS, TLS_EVENT, error.detail)
            else:
                self._cut(CloseReason.MALFORMED, "connection cut off: bad frame", error.detail)
            return
        if receiver.frames:
            self._go_on()
        elif receiver.needs_room:
            self._steer_reading()
        if receiver.is_partial:
            self._progress.heard(asyncio.get_running_loop().time(), frame=receiver.begun, filled=receiver.filled)
            self._shared.watch.add(self)

    def eof_received(self) -> bool:
        """Keep the connection open if a response is being sent: the peer has only closed its sending side."""
        if self._outbox.is_sending:
            self._finish(
                MillstreamError(ErrorCode.NETWORK_EXCEPTION, "the client has closed its side of the connection")
            )
            return True
        return False

    def pause_writing(self) -> None:
        self._outbox.pause()
        self._shared.watch.add(self)

    def resume_writing(self) -> None:
        self._outbox.resume()
        self._go_on()
        self._channel.resume()
        self._close_when_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._is_over = True
        self._shared.ended(self, self._peer, CloseReason.ERROR if self._outbox.has_failed else self._reason)
        self._shared.watch.remove(self)
        self._outbox.close()
        self._receiver.discard()
        self._responses.drop()
        self._channel.drop()

    # The listener's view

    def drain(self) -> None:
        """Stop accepting requests and close once the pending ones are answered, because the broker stops."""
        self._ends_for(CloseReason.DRAIN)
        self._finish(MillstreamError(ErrorCode.SHUTTING_DOWN))

    def abort(self) -> None:
        """Close at once, because the broker stops."""
        self._abort(CloseReason.DRAIN)

    def check(self, now: float) -> bool:
        """Disconnect a peer that stopped in the middle of a frame, or that takes no byte of its responses.

        Returns True while there is something to watch.
        """
        if self._transport is None:
            return False
        is_partial = self._receiver.is_partial
        if is_partial and self._reading and now - self._progress.heard_at > FRAME_SILENCE_S:
            self._cut(CloseReason.IDLE, "connection cut off: half a frame", f"no data for {FRAME_SILENCE_S:.0f} s")
            return False
        if self._outbox.is_stuck(now):
            self._cut(
                CloseReason.SLOW, "connection cut off: slow reader", f"no data taken for {READER_SILENCE_S:.0f} s"
            )
            return False
        return is_partial or self._outbox.is_paused

    def is_slow(self, now: float) -> bool:
        """True if an incomplete frame holds memory that other frames wait for, and its data arrives too slowly."""
        receiver = self._receiver
        return (
            receiver.holds_room
            and bool(receiver.pool.waiting)
            and self._reading
            and self._progress.is_slow(now, receiver.filled)
        )

    def cut_for_memory(self) -> None:
        why = "a slow, incomplete frame held memory that other requests wait for"
        self._cut(CloseReason.MEMORY, "connection cut off: memory", why)

    # Flow control

    def _go_on(self) -> None:
        """Dispatch the received frames, as far as the limits allow, and send the responses."""
        if self._dispatching:
            return
        self._dispatching = True
        receiver, outbox, responses = self._receiver, self._outbox, self._responses
        frames = receiver.frames
        try:
            while frames and not (outbox.is_paused or responses.is_full or self._is_over or self._draining):
                frame = frames.popleft()
                if not self._dispatcher.dispatch(frame):
                    frames.appendleft(frame)
                    break
                self._shared.counters.requests += 1
                if frames and outbox.is_full:
                    outbox.send()
        except Exception as error:
            self._fail(error)
        finally:
            self._dispatching = False
        outbox.send()
        if frames or not self._reading or receiver.needs_room or self._draining:
            self._steer_reading()

    def _answered(self) -> None:
        """Continue after pending responses were put into the outbox: send them and dispatch further requests."""
        if self._receiver.frames or not self._reading:
            self._go_on()
        elif not self._dispatching:
            self._outbox.send()
        if self._draining:
            self._close_when_drained()

    def _steer_reading(self) -> None:
        """Pause or resume reading, so that the broker reads only data that it can process."""
        receiver = self._receiver
        wanted = not receiver.frames and not receiver.needs_room and not self._draining
        transport = self._transport
        if wanted == self._reading or transport is None or transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._progress.restart(asyncio.get_running_loop().time(), receiver.filled)
            transport.resume_reading()
        else:
            transport.pause_reading()

    # The end

    def _finish(self, why: MillstreamError) -> None:
        """Stop accepting requests and close once the pending ones are answered. Streaming requests end with `why`."""
        self._draining = True
        self._responses.hurry()
        self._channel.end(why)
        self._steer_reading()
        self._close_when_drained()

    def _ends_for(self, reason: CloseReason) -> None:
        """Set the reason of the close, unless the connection is already ending for another one."""
        if "_reason" not in self.__dict__:
            self._reason = reason

    def _abort(self, reason: CloseReason) -> None:
        self._ends_for(reason)
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    def _close_when_drained(self) -> None:
        is_answered = not len(self._responses) and not self._outbox.is_sending
        if self._draining and is_answered and self._transport is not None:
            self._transport.close()

    def _cut(self, reason: CloseReason, event: str, why: str) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._shared.counters.connections_cut += 1
        self._shared.peers.note(self._peer.address, event, why, client=self._peer)
        self._abort(reason)

    def _fail(self, error: BaseException) -> None:
        """Close the connection after a request that gets no response: the responses after it cannot be sent either."""
        if isinstance(error, MalformedMessageError):
            self._cut(CloseReason.MALFORMED, "connection cut off: bad request", error.detail)
        elif isinstance(error, UnservedRequestError):
            self._cut(CloseReason.UNSUPPORTED, "connection cut off: unknown request", error.detail)
        elif isinstance(error, CloseConnectionError):
            self._cut(CloseReason.FAILED, _FAILED_WITHOUT_RESPONSE, error.detail)
        elif isinstance(error, asyncio.CancelledError):
            self.abort()  # The listener cancels tasks when it stops.
        else:
            _log.error(
                "request failed unexpectedly, connection closed",
                extra=caller_fields(self._peer),
                exc_info=error,
            )
            self._abort(CloseReason.ERROR)
