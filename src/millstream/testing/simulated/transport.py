"""Simulates one end of a connection: an asyncio transport whose bytes need simulated time to arrive.

Bytes move through three places. `write` puts them into the sender's buffer without copying, so a sender that modifies a
buffer after writing it is detected. On the wire they have left and will arrive in order. In the receiver's inbox they
have arrived; they stay there while the protocol pauses reading. Wire and inbox together hold at most `WINDOW_BYTES`.
More stays with the sender, whose protocol is asked to pause writing.

Each direction can be blocked separately. A blocked end sends nothing, not even acknowledgements. The other end's bytes
still arrive, but stay in its window, so it stalls after `WINDOW_BYTES`.

The buffer, the wire and the inbox belong to the machines, not to the processes. While a process is paused, its written
bytes still leave, and bytes sent to it arrive, up to the window. Its protocol is notified when it resumes. A reset does
not discard bytes that have arrived: a protocol that reads gets them before `connection_lost`, as on Linux.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.process_owner import OWNER
from millstream.testing.simulated.trace import Trace

WINDOW_BYTES = 128 * 1024
_HIGH_WATER_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024


@dataclass(slots=True)
class Conditions:
    """The behaviour of the network. It may be changed during a run."""

    latency_s: float = 0.0005
    jitter_s: float = 0.002
    pieces_chance: float = 0.1
    """The probability that a write is split into pieces of odd sizes."""

    def delay(self, random: Random) -> float:
        return self.latency_s + random.random() * self.jitter_s


@dataclass(slots=True)
class SimulatedWire:
    """The state that both ends of a connection share."""

    loop: SimulatedLoop
    random: Random
    conditions: Conditions
    trace: Trace
    name: str


class _Signal:
    """The end of a stream: orderly (a FIN) or at once (a reset)."""

    def __init__(self, name: str) -> None:
        self.name = name


_FIN = _Signal("fin")
_RESET = _Signal("reset")


class SimulatedTransport(asyncio.Transport):
    """One end of a connection, see the module. `SimulatedNetwork` creates pairs; protocols run in `context`."""

    def __init__(self, wire: SimulatedWire, context: Context, side: str, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self._wire = wire
        self._context = context
        self.owner = context.get(OWNER)
        self._name = f"{wire.name}/{side}"
        self._peer: SimulatedTransport | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        # Sending.
        self._outbox: deque[memoryview | _Signal] = deque()
        self._outbox_bytes = 0
        self._sending = False
        self._blocked = False
        self._in_flight_bytes = 0
        """Bytes that were sent but not acknowledged."""
        self._last_arrival_s = 0.0
        self._high_bytes = _HIGH_WATER_BYTES
        self._low_bytes = _HIGH_WATER_BYTES // 4
        self._writing_paused = False
        # Receiving.
        self._inbox = bytearray()
        self._inbox_ended = False
        self._reset: ConnectionResetError | None = None
        """The reset that takes effect after the inbox is delivered."""
        self._unacknowledged_bytes = 0
        """Bytes that arrived while this end was blocked."""
        self._reading = True
        self._delivering = False
        # The end.
        self._closing = False
        self._lost = False

    # The interface for asyncio programs

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._lost:
            return
        view = memoryview(data).cast("B")
        if not view.nbytes:
            return
        if self._reset is not None:
            self._end(self._reset)
            return
        self._outbox.append(view)
        self._outbox_bytes += view.nbytes
        self._schedule_send()
        if self._outbox_bytes > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self._notify("pause_writing")

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def write_eof(self) -> None:
        if not self._closing and not self._lost and _FIN not in self._outbox:
            self._outbox.append(_FIN)
            self._schedule_send()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        """Send the buffered bytes, then close the connection in an orderly way."""
        if self._closing or self._lost:
            return
        self.write_eof()
        self._closing = True
        self._inbox.clear()

    def abort(self) -> None:
        """Close the connection at once. The other end sees a reset."""
        self._break(None, announce=True)

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._schedule_delivery()

    def is_reading(self) -> bool:
        return self._reading and not self.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = high if high is not None else (4 * low if low is not None else _HIGH_WATER_BYTES)
        self._low_bytes = low if low is not None else self._high_bytes // 4
        if not self._high_bytes >= self._low_bytes >= 0:
            raise ValueError(f"high ({self._high_bytes}) must be >= low ({self._low_bytes}) must be >= 0")

    def get_write_buffer_size(self) -> int:
        return self._outbox_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (self._low_bytes, self._high_bytes)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    # The interface for the network

    def connect_to(self, peer: "SimulatedTransport") -> None:
        self._peer = peer

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Attach the protocol. Earlier input is delivered after `connection_made`."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._schedule_delivery()

    def kick(self) -> None:
        """Send buffered bytes if that is possible now."""
        self._schedule_send()

    def set_blocked(self, blocked: bool) -> None:
        """Block or unblock everything that leaves this end. The other direction is not affected."""
        self._blocked = blocked
        if not blocked and self._unacknowledged_bytes and self._peer is not None:
            self._peer._acknowledged(self._unacknowledged_bytes)
            self._unacknowledged_bytes = 0
            self._peer.kick()

    def cut(self) -> None:
        """Break the connection at this end: its protocol is notified, but the other end is not."""
        self._break(ConnectionResetError(errno.ECONNRESET, "the connection was cut"), announce=False)

    def vanish(self, *, announce: bool) -> None:
        """End this side because its process is gone. None of its code runs.

        With `announce` the other end is notified, as by a kernel: by a reset if received bytes were not read, else by
        the end of the stream.
        """
        self._lost = True
        self._protocol = None
        self._drop_outbox()
        if announce:
            self._outbox.append(_RESET if self._inbox else _FIN)
            self._schedule_send()

    @property
    def is_lost(self) -> bool:
        return self._lost

    # Sending

    def _schedule_send(self) -> None:
        if not self._sending and self._outbox:
            self._sending = True
            self._wire.loop.call_soon(self._send, context=_NOBODY)

    def _send(self) -> None:
        self._sending = False
        peer = self._peer
        if not self._outbox or self._blocked or peer is None:
            return
        item = self._outbox[0]
        if isinstance(item, _Signal):
            self._outbox.popleft()
            self._post(peer._signalled, item)
            if item is _FIN and self._closing:
                self._end(None)
        else:
            room = WINDOW_BYTES - self._in_flight_bytes - max(0, len(peer._inbox) - peer._unacknowledged_bytes)
            if room <= 0:
                return  # The receiver calls `kick` when it has read.
            self._send_bytes(peer, item, min(room, self._piece_bytes(item.nbytes)))
        self._schedule_send()

    def _piece_bytes(self, available: int) -> int:
        random = self._wire.random
        if random.random() >= self._wire.conditions.pieces_chance:
            return available
        return random.choice((1, 3, 4, 5, random.randint(1, available), max(1, available - 1)))

    def _send_bytes(self, peer: "SimulatedTransport", item: memoryview, size: int) -> None:
        size = min(size, item.nbytes)
        piece = bytes(item[:size])
        if size == item.nbytes:
            self._outbox.popleft()
        else:
            self._outbox[0] = item[size:]
        self._outbox_bytes -= size
        self._in_flight_bytes += size
        self._post(peer._arrived, piece)
        if self._writing_paused and self._outbox_bytes <= self._low_bytes:
            if self.owner is None or self.owner.runs:
                self._resume_writing()
            else:
                self._wire.loop.call_soon(self._resume_writing, context=self._context)

    def _resume_writing(self) -> None:
        """Notify the protocol that there is room, unless a paused process has used it up meanwhile."""
        if self._writing_paused and self._outbox_bytes <= self._low_bytes:
            self._writing_paused = False
            self._notify("resume_writing")

    def _post(self, deliver: Callable[..., None], item: object) -> None:
        """Deliver something to the other end after the wire's delay, after everything posted before.

        It runs outside all processes, in simulated time.
        """
        wire = self._wire
        arrival_s = max(self._last_arrival_s, wire.loop.true_time() + wire.conditions.delay(wire.random))
        self._last_arrival_s = arrival_s
        wire.loop.call_at(arrival_s, deliver, item, context=_NOBODY)

    # Receiving

    def _arrived(self, piece: bytes) -> None:
        assert self._peer is not None
        if self._blocked:
            self._unacknowledged_bytes += len(piece)
        else:
            self._peer._acknowledged(len(piece))
        if self._lost or self._closing:
            # A kernel also answers bytes for a closed socket with a reset.
            if not self._peer._lost and not self._blocked:
                self._post(self._peer._signalled, _RESET)
            return
        self._note("bytes", len(piece), crc32(piece))
        self._inbox += piece
        self._schedule_delivery()

    def _acknowledged(self, size: int) -> None:
        self._in_flight_bytes -= size
        assert self._in_flight_bytes >= 0, "more was acknowledged than was sent"

    def _signalled(self, signal: _Signal) -> None:
        if self._lost:
            return
        self._note(signal.name)
        if signal is _RESET:
            reset = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            if self._inbox and self._reading and not self._closing:
                self._drop_outbox()
                self._reset = reset
                self._schedule_delivery()
            else:
                self._break(reset, announce=False)
        else:
            self._inbox_ended = True
            self._schedule_delivery()

    def _schedule_delivery(self) -> None:
        if not self._delivering and self._protocol is not None:
            self._delivering = True
            self._wire.loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        self._delivering = False
        protocol = self._protocol
        if protocol is None or self._lost or self._closing or not self._reading:
            return
        try:
            if self._inbox:
                self._hand_over(protocol)
            elif self._inbox_ended:
                self._inbox_ended = False
                if not _call(protocol, "eof_received"):
                    self.close()
                return
        except BaseException as error:
            self._fatal(error)
            return
        if self._reset is not None and not self._inbox:
            self._end(self._reset)
            return
        if self._peer is not None:
            self._peer.kick()
        if self._inbox or self._inbox_ended:
            self._schedule_delivery()

    def _hand_over(self, protocol: asyncio.BaseProtocol) -> None:
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(len(self._inbox))).cast("B")
            size = min(buffer.nbytes, len(self._inbox))
            if not size:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[:size] = self._inbox[:size]
            del self._inbox[:size]
            buffer.release()
            protocol.buffer_updated(size)
        elif isinstance(protocol, asyncio.Protocol):
            data = bytes(self._inbox[:_READ_BYTES])
            del self._inbox[:_READ_BYTES]
            protocol.data_received(data)

    # The end

    def _break(self, error: Exception | None, *, announce: bool) -> None:
        if self._lost:
            return
        self._drop_outbox()
        if announce:
            self._outbox.append(_RESET)
            self._schedule_send()
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._inbox.clear()
        protocol = self._protocol
        if protocol is not None:
            self._wire.loop.call_soon(protocol.connection_lost, error, context=self._context)
            self._protocol = None

    def _drop_outbox(self) -> None:
        self._outbox.clear()
        self._outbox_bytes = 0

    def _fatal(self, error: BaseException) -> None:
        self._wire.loop.call_exception_handler(
            {"message": "a protocol raised", "exception": error, "transport": self, "protocol": self._protocol}
        )
        self._break(error if isinstance(error, Exception) else None, announce=True)

    def _notify(self, method: str) -> None:
        """Call a flow control method of the protocol in its owner's context, at once as asyncio does."""
        if self._protocol is not None:
            self._context.copy().run(_call, self._protocol, method)

    def _note(self, event: str, *values: int) -> None:
        self._wire.trace.note(self._wire.loop.true_time(), event, self._name, *values)


_NOBODY = Context()
"""The context of the wire, which belongs to no process: bytes arrive even after their sender has crashed."""


def _call(protocol: asyncio.BaseProtocol, method: str) -> object:
    function = getattr(protocol, method, None)
    return function() if function is not None else None
