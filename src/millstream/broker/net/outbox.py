"""The outgoing half of a connection: answers on their way to the transport, and how fast the peer takes them.

A large answer goes to the socket itself, in two writes, while the transport has nothing else to send; the transport
gets what the socket does not take, and meets whatever error there is.

An answer with parts of files in it goes to the socket only, which takes them from the page cache. When that takes no
more, the transport gets a bite of what is left: with that bite gone, it tells that there is room again.

Invariant: while `_rest` holds anything, `is_paused` is set, and the transport has a bite or a worker reads one.
"""

import asyncio
import os
from collections import deque
from functools import partial
from typing import cast

from millstream.broker.dispatch.request import Answer
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.seams.file_part import PART_BYTES_MIN, FilePart
from millstream.seams.workers import Workers
from millstream.wire.framing import Buffer, Piece, frame_response

HIGH_WATER_BYTES = 64 * 1024
BITE_BYTES = 4 * 1024
COLD_BYTES = 1024 * 1024
"""Read at once of a part that is not in memory any more."""

READER_SILENCE_S = 60.0
_JOIN_BELOW_BYTES = 8 * 1024
_FIRST_WRITE_BYTES = 32 * 1024 - 31
"""How much of a large answer is written first.

Linux gathers what is written in pieces of 32 KiB, the first one from its very beginning when all before has been read.
A reader on the same machine has the four bytes of the size first and copies what follows to the beginning of a block
of its own memory, which the C library places 16 bytes into a page: 12 bytes further on than it lies in its piece. Some
processors copy several times slower when the target is that little ahead of the source within their pages, and the
reader pays for it with every byte. A piece with less than 32 bytes left is not filled up: ended so early, it moves
everything behind it to where copies are fast. Where none of this holds, the cut costs one system call.
"""


class Outbox:
    """Invariant: `_unsent_bytes` is its connection's part of `MemoryLimits.outgoing_bytes`, 0 unless its reader is
    behind."""

    def __init__(self, memory: MemoryLimits, workers: Workers, protocol: asyncio.BaseProtocol) -> None:
        """`protocol` is told to resume writing as by a transport."""
        self.is_paused = False
        """The peer has enough; nothing should be added that can wait."""
        self._memory = memory
        self._workers = workers
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None
        self._pieces: list[Piece] = []
        self._bytes = 0
        self._has_parts = False
        self._rest: deque[Piece] = deque()
        self._socket_fd: int | None = None
        self._unsent_bytes = 0
        self._left_bytes = 0
        self._taken_at = 0.0

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        socket = transport.get_extra_info("socket")
        if socket is not None and transport.get_extra_info("sslcontext") is None:
            self._socket_fd = socket.fileno()

    def close(self) -> None:
        self._transport = None
        self._socket_fd = None
        self._pieces.clear()
        self._rest.clear()
        self._count_unsent()

    @property
    def is_full(self) -> bool:
        """Large answers leave one by one, so that the transport can say when it has enough."""
        return self._bytes > HIGH_WATER_BYTES

    @property
    def is_sending(self) -> bool:
        """Whether there is something that the transport does not know of."""
        return bool(self._rest)

    def put(self, correlation_id: int, flexible: bool, answer: Answer) -> None:
        size = size_of(answer)
        self._bytes += size
        head = frame_response(correlation_id, flexible, size)
        if size < _JOIN_BELOW_BYTES:
            whole = answer if isinstance(answer, bytes) else b"".join(cast("list[Buffer]", answer))
            self._pieces.append(head + whole)
        elif not isinstance(answer, bytes):
            self._pieces.append(head)
            self._pieces += answer
            if size > PART_BYTES_MIN and not self._has_parts:
                self._has_parts = not all(isinstance(piece, Buffer) for piece in answer)
        else:
            self._pieces += (head, answer)

    def send(self) -> None:
        """Hand over what was put; nothing of it is copied here."""
        pieces, transport = self._pieces, self._transport
        if not pieces:
            return
        is_large, has_parts = self.is_full, self._has_parts or bool(self._rest)
        self._pieces = []
        self._bytes = 0
        self._has_parts = False
        if transport is None or transport.is_closing():
            return
        if has_parts:
            self._rest += pieces
            # Asked again: an answer may have waited long for those before it.
            if not self.is_paused and self._is_next_cached():
                self._send_rest(transport)
            return
        buffers = cast("list[Buffer]", pieces)
        if is_large and self._socket_fd is not None and not transport.get_write_buffer_size():
            buffers = _write_now(self._socket_fd, buffers)
            if not buffers:
                return
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)
        if self.is_paused:
            self._count_unsent()

    def pause(self) -> None:
        self.is_paused = True
        self._taken_at = asyncio.get_running_loop().time()
        self._count_unsent()

    def resume(self) -> None:
        """There is room again; afterwards it may have been filled."""
        self.is_paused = False
        if self._rest and self._transport is not None and self._is_next_cached():
            self._send_rest(self._transport)
        self._count_unsent()

    def is_stuck(self, now: float) -> bool:
        """Whether the peer has taken no byte for too long."""
        if not self.is_paused:
            return False
        before = self._left_bytes
        self._count_unsent()
        if self._left_bytes < before:
            self._taken_at = now
        return now - self._taken_at > READER_SILENCE_S

    def _send_rest(self, transport: asyncio.Transport) -> None:
        """Send until all is gone or the socket takes no more."""
        rest, fd = self._rest, self._socket_fd
        if fd is None:
            pieces = [piece if isinstance(piece, Buffer) else piece.read(len(piece)) for piece in rest]
            rest.clear()
            transport.writelines(pieces)
            return
        try:
            while rest:
                if not transport.get_write_buffer_size() and not _send_first(fd, rest):
                    transport.write(_take_bite(rest))
                if rest and transport.get_write_buffer_size():
                    transport.set_write_buffer_limits(high=0)
                    return
                if not self._is_next_cached():
                    return
        except OSError:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def _is_next_cached(self) -> bool:
        """Whether the next part can be sent; the beginning of one that is not in memory any more is read first."""
        part = next((piece for piece in self._rest if not isinstance(piece, Buffer)), None)
        if part is None or part.is_cached():
            return True
        self.pause()
        work = self._workers.run(partial(part.read, COLD_BYTES))
        work.add_done_callback(partial(self._was_read, part))
        return False

    def _was_read(self, part: FilePart, work: "asyncio.Future[bytes]") -> None:
        if self._transport is None or work.cancelled():
            return
        if work.exception() is not None:
            self._transport.abort()
            return
        rest, data = self._rest, work.result()
        place = rest.index(part)
        rest[place] = data
        if len(data) < len(part):
            rest.insert(place + 1, part.behind(len(data)))
        self._protocol.resume_writing()

    def _count_unsent(self) -> None:
        transport, now = self._transport, 0
        if transport is not None and self.is_paused:
            self._left_bytes = transport.get_write_buffer_size()
            now = self._left_bytes + memory_of(self._rest)
            self._left_bytes += sum(map(len, self._rest))
        self._memory.outgoing_bytes += now - self._unsent_bytes
        self._unsent_bytes = now


def _send_first(fd: int, rest: deque[Piece]) -> bool:
    """Send what is first in `rest`, up to the end of its first part; whether the socket took all of it."""
    buffers: list[Buffer] = []
    while rest:
        piece = rest[0]
        if not isinstance(piece, Buffer):
            return _send_part(fd, b"".join(buffers), piece, rest)
        buffers.append(piece)
        rest.popleft()
    unsent = _write_now(fd, buffers)
    rest.extendleft(reversed(unsent))
    return not unsent


def _send_part(fd: int, head: bytes, part: FilePart, rest: deque[Piece]) -> bool:
    sent = part.send(head, fd)
    if sent == len(head) + len(part):
        rest.popleft()
        return True
    if sent < len(head):
        rest.appendleft(head[sent:])
    else:
        rest[0] = part.behind(sent - len(head))
    return False


def _take_bite(rest: deque[Piece]) -> Buffer:
    """A few of the next bytes, for the transport to wait with."""
    piece = rest.popleft()
    if isinstance(piece, Buffer):
        return piece
    bite = piece.read(BITE_BYTES)
    if len(bite) < len(piece):
        rest.appendleft(piece.behind(len(bite)))
    return bite


def _write_now(fd: int, pieces: list[Buffer]) -> list[Buffer]:
    """Write what the socket takes without waiting; the rest of the pieces."""
    first, behind = _cut(pieces, _FIRST_WRITE_BYTES)
    unsent = _write_part(fd, first)
    return unsent + behind if unsent else _write_part(fd, behind)


def _write_part(fd: int, pieces: list[Buffer]) -> list[Buffer]:
    try:
        sent = os.writev(fd, pieces)
    except OSError:
        return pieces  # It takes nothing now, not so many pieces, or never anything again: the transport will see.
    return _cut(pieces, sent)[1]


def _cut(pieces: list[Buffer], size: int) -> tuple[list[Buffer], list[Buffer]]:
    """The first `size` bytes, and those behind them."""
    for number, piece in enumerate(pieces):
        if size < len(piece):
            view = memoryview(piece)
            before = [*pieces[:number], view[:size]] if size else pieces[:number]
            return before, [view[size:], *pieces[number + 1 :]]
        size -= len(piece)
    return pieces, []


def size_of(answer: Answer) -> int:
    return len(answer) if isinstance(answer, bytes) else sum(map(len, answer))


def memory_of(answer: Answer | deque[Piece]) -> int:
    """How many of an answer's bytes are in memory, and not in a file."""
    if isinstance(answer, bytes):
        return len(answer)
    return sum(len(piece) for piece in answer if isinstance(piece, Buffer))
