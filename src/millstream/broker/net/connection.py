"""One peer: frames in, requests dispatched, answers out in the order of the requests.

Nothing is awaited where nothing must be waited for: a request whose handler answers at once is answered within the
read that brought it. While earlier requests wait (for a flush, for data), later ones are dispatched already; only
their answers are held back. Those who stand (see `StreamingRequest`) send further frames between answers.

Bounds, all per connection: requests under way (`PENDING_MAX`, `PENDING_BYTES_MAX`), then reading stops; unsent answers
(the transport's high-water mark), then dispatch stops; a peer that begins a frame and falls silent, or takes no byte
of its answers, is cut off.

Invariant: `_pending` holds the requests not yet answered, oldest first; outside of `_settle` its first one is not done.
"""

import asyncio
import logging
from collections import deque
from functools import partial
from struct import Struct
from typing import cast

from millstream.broker.dispatch.request import (
    Answer,
    BrokerRequest,
    CloseConnectionError,
    DeferredResponse,
    Result,
    Work,
)
from millstream.broker.dispatch.roles import refuse
from millstream.broker.net.client_info import ClientInfo
from millstream.broker.net.frame_progress import FrameProgress
from millstream.broker.net.listener_state import ListenerState
from millstream.broker.net.outbox import READER_SILENCE_S, Outbox, memory_of
from millstream.broker.net.push_channel import StreamingRequest
from millstream.broker.net.receiver import Receiver
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.framing import read_request_header
from millstream.wire.malformed import MalformedMessageError

PENDING_MAX = 64
PENDING_BYTES_MAX = 16 * 1024 * 1024
FRAME_SILENCE_S = 30.0

_NO_ANSWER_FAILED = "connection closed: a request failed that has no answer to say so"
_START = Struct(">hhih")
_AT_ONCE = (bytes, list)
_log = logging.getLogger("millstream.broker")


class _Pending:
    """A request under way: how its answer begins, and what memory it holds until then."""

    __slots__ = ("correlation_id", "flexible", "frame_bytes", "held_bytes", "later")

    def __init__(self, correlation_id: int, flexible: bool, frame_bytes: int, later: DeferredResponse) -> None:
        self.correlation_id = correlation_id
        self.flexible = flexible
        self.frame_bytes = frame_bytes
        self.later = later
        self.held_bytes = 0


class ClientConnection(asyncio.BufferedProtocol):
    def __init__(self, shared: ListenerState) -> None:
        self._shared = shared
        self._receiver = Receiver(shared.staging, shared.memory, self._go_on, shared.table.bytes_max)
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._outbox = Outbox(shared.memory, shared.workers, self)
        self._transport: asyncio.Transport | None = None
        self._peer = ClientInfo()
        self._reading = True
        self._draining = False
        self._is_over = False
        self._dispatching = False
        self._progress = FrameProgress()
        self.open_requests: dict[int, StreamingRequest] = {}
        self._held: dict[StreamingRequest, None] = {}

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's are not of asyncio's class
        self._transport = transport
        self._outbox.open(transport)
        address = transport.get_extra_info("peername")
        self._peer.address = str(address[0]) if isinstance(address, tuple) and address else "?"
        self._shared.connections.add(self)
        self._shared.counters.connections_accepted += 1

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        receiver = self._receiver
        try:
            receiver.received(nbytes)
        except MalformedMessageError as error:
            self._cut("connection cut off: bad frame", error.detail)
            return
        if receiver.frames:
            self._go_on()
        elif receiver.needs_room:
            self._steer_reading()
        if receiver.is_partial:
            self._progress.heard(asyncio.get_running_loop().time(), receiver.begun, receiver.filled)
            self._shared.watch.add(self)

    def eof_received(self) -> bool:
        """The peer sends no more; the answer that it is being sent still goes out."""
        if self._outbox.is_sending:
            self.drain(MillstreamError(ErrorCode.NETWORK_EXCEPTION, "the connection was closed at the reader's end"))
            return True
        return False

    def pause_writing(self) -> None:
        self._outbox.pause()
        self._shared.watch.add(self)

    def resume_writing(self) -> None:
        self._outbox.resume()
        self._go_on()
        held, self._held = self._held, {}
        for each in held:
            each.go_on()
        self._close_when_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._is_over = True
        self._shared.connections.remove(self)
        self._shared.watch.remove(self)
        memory = self._shared.memory
        pending, self._pending = self._pending, deque()
        memory.outgoing_bytes -= sum(each.held_bytes for each in pending)
        self._outbox.close()
        self._receiver.discard()
        for each in pending:
            each.later.hurry()
            memory.give_back(each.frame_bytes)
        for request in list(self.open_requests.values()):
            request.drop()

    # What the listener calls

    def drain(self, why: MillstreamError | None = None) -> None:
        """Take no further request; end when those under way are answered. What stands is told why: unless something
        else is said, because the broker is being stopped."""
        self._draining = True
        error = MillstreamError(ErrorCode.SHUTTING_DOWN) if why is None else why
        for each in list(self._pending):
            each.later.hurry()
        for request in list(self.open_requests.values()):
            request.end(error)
        self._steer_reading()
        self._close_when_drained()

    def abort(self) -> None:
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    def check(self, now: float) -> bool:
        """Cut off a peer that stopped in the middle of a frame, or that takes no byte of what it asked for."""
        if self._transport is None:
            return False
        is_partial = self._receiver.is_partial
        if is_partial and self._reading and now - self._progress.heard_at > FRAME_SILENCE_S:
            self._cut("connection cut off: half a frame", f"nothing came for {FRAME_SILENCE_S:.0f} s")
            return False
        if self._outbox.is_stuck(now):
            self._cut("connection cut off: slow reader", f"took nothing for {READER_SILENCE_S:.0f} s")
            return False
        return is_partial or self._outbox.is_paused

    def is_slow(self, now: float) -> bool:
        """Whether a half frame holds memory that others wait for, and hardly any more of it comes."""
        receiver = self._receiver
        return (
            receiver.holds_room
            and bool(receiver.pool.waiting)
            and self._reading
            and self._progress.is_slow(now, receiver.filled)
        )

    def cut_for_memory(self) -> None:
        self._cut("connection cut off: memory", "an unfinished frame held memory that others need")

    # What those call who stand

    @property
    def is_paused(self) -> bool:
        return self._outbox.is_paused

    def hold(self, request: StreamingRequest) -> None:
        self._held[request] = None

    def push(self, correlation_id: int, flexible: bool, answer: Answer) -> None:
        self._outbox.put(correlation_id, flexible, answer)
        self._outbox.send()

    # Dispatch

    def _go_on(self) -> None:
        """Dispatch what has arrived, as far as the bounds allow, and send what was answered."""
        if self._dispatching:
            return
        self._dispatching = True
        try:
            frames = self._receiver.frames
            while frames and self._may_dispatch():
                self._handle(frames.popleft())
                if frames and self._outbox.is_full:
                    self._outbox.send()
        finally:
            self._dispatching = False
        self._outbox.send()
        self._steer_reading()

    def _may_dispatch(self) -> bool:
        return (
            not self._outbox.is_paused
            and len(self._pending) < PENDING_MAX
            and self._pending_bytes < PENDING_BYTES_MAX
            and not self._is_over
            and not self._draining
        )

    def _handle(self, frame: bytearray) -> None:
        size = len(frame)
        try:
            if size < _START.size:
                raise MalformedMessageError(f"a frame of {size} bytes has no room for a request")
            key, version, correlation_id, client_bytes = _START.unpack_from(frame)
            route = self._shared.table.route(key, version)
            if route is None:
                self._refuse(key, version, correlation_id, size)
                return
            if size > route.bytes_max:
                raise MalformedMessageError(f"a {route.api} request of {size} bytes, {route.bytes_max} are allowed")
            view = memoryview(frame)
            body = _START.size + client_bytes
            if client_bytes < 0 or body >= size:
                _, body = read_request_header(view, route.flexible)
            elif route.flexible:
                if frame[body] == 0:
                    body += 1
                else:
                    _, body = read_request_header(view, flexible=True)
            peer = self._peer
            request = BrokerRequest(version, correlation_id, view, body, peer, self)
            if peer.role is None or route.role is None or route.role is peer.role:
                result = route.handle(request)
            else:
                result = refuse(key, route.api, request)
        except MalformedMessageError as error:
            self._shared.memory.give_back(size)
            self._cut("connection cut off: bad request", error.detail)
            return
        except CloseConnectionError as error:
            self._shared.memory.give_back(size)
            self._cut(_NO_ANSWER_FAILED, error.detail)
            return
        except Exception as error:
            self._shared.memory.give_back(size)
            self.fail(error)
            return
        self._shared.counters.requests += 1
        self._take(correlation_id, route.flexible_answer, size, result)

    def _refuse(self, key: int, version: int, correlation_id: int, size: int) -> None:
        """A key or a version that is not served: answered where the protocol knows an answer, otherwise cut off."""
        row = self._shared.table.rows.get(key)
        if row is None or row.refusal is None:
            self._shared.memory.give_back(size)
            api = row.api if row else "?"
            self._cut("connection cut off: unknown request", f"key {key} ({api}) version {version} is not served")
        else:
            self._take(correlation_id, False, size, row.refusal)

    def _take(self, correlation_id: int, flexible: bool, size: int, result: Result) -> None:
        """What the handler returned: answer now, or when its turn has come."""
        if result is None:
            self._shared.memory.give_back(size)
            return
        if isinstance(result, _AT_ONCE):
            if not self._pending:
                self._shared.memory.give_back(size)
                self._put(correlation_id, flexible, result)
                return
            later = DeferredResponse.done(result)
        else:
            later = result if isinstance(result, DeferredResponse) else DeferredResponse(result.hurry)
        pending = _Pending(correlation_id, flexible, size, later)
        self._pending.append(pending)
        self._pending_bytes += size
        if later.is_done:
            self._done(pending)
        else:
            later.when_done(partial(self._done, pending), self.start)
        if isinstance(result, Work):
            self.start(result, later)

    def start(self, work: Work, later: DeferredResponse) -> None:
        task = asyncio.get_running_loop().create_task(work.run)
        tasks = self._shared.tasks
        tasks[task] = None

        def ended(task: asyncio.Task[Answer | None]) -> None:
            tasks.pop(task, None)
            if task.cancelled():
                self.abort()
                return
            error = task.exception()
            if isinstance(error, MalformedMessageError):
                self._cut("connection cut off: bad request", error.detail)
            elif isinstance(error, CloseConnectionError):
                self._cut(_NO_ANSWER_FAILED, error.detail)
            elif error is not None:
                self.fail(error)
            else:
                later.finish(task.result())

        task.add_done_callback(ended)

    # Answers

    def _done(self, pending: _Pending) -> None:
        if not self._pending:
            return  # The connection is over.
        if pending.later.error is not None:
            self.fail(pending.later.error)
            return
        if pending is self._pending[0]:
            self._settle()
            self._go_on()
            self._close_when_drained()
        else:
            answer = pending.later.answer
            pending.held_bytes = memory_of(answer) if answer is not None else 0
            self._shared.memory.outgoing_bytes += pending.held_bytes

    def _settle(self) -> None:
        """Put out the answers whose turn has come."""
        memory = self._shared.memory
        while self._pending and self._pending[0].later.is_done:
            pending = self._pending.popleft()
            self._pending_bytes -= pending.frame_bytes
            memory.outgoing_bytes -= pending.held_bytes
            memory.give_back(pending.frame_bytes)
            if pending.later.answer is not None:
                self._put(pending.correlation_id, pending.flexible, pending.later.answer)

    def _put(self, correlation_id: int, flexible: bool, answer: Answer) -> None:
        self._outbox.put(correlation_id, flexible, answer)
        if correlation_id in self.open_requests:
            self.open_requests[correlation_id].begin()

    # Flow and end

    def _steer_reading(self) -> None:
        """Read exactly when what is read could be dealt with."""
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

    def _close_when_drained(self) -> None:
        is_answered = not self._pending and not self._outbox.is_sending
        if self._draining and is_answered and self._transport is not None:
            self._transport.close()

    def _cut(self, event: str, why: str) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._shared.counters.connections_cut += 1
        self._shared.peers.note(self._peer.address, event, why)
        self.abort()

    def fail(self, error: BaseException) -> None:
        _log.error(
            "a request failed unexpectedly; its connection is closed",
            extra={"peer": self._peer.address},
            exc_info=error,
        )
        self.abort()
