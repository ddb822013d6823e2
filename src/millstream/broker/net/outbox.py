"""Sends the responses of one connection and measures how fast the peer takes them.

A large response is written directly to the socket, in two writes, while the transport's buffer is empty. The transport
gets the bytes that the socket does not take, and handles errors.

A response with file parts is written only to the socket, which takes the parts from the page cache. If the socket takes
no more, the transport gets a small piece of the remaining data. Once that piece is sent, the transport reports that
there is room again.

Invariant: while `_rest` is not empty, `is_paused` is set, and either the transport holds a piece or a worker reads one.
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
PIECE_BYTES = 4 * 1024
COLD_BYTES = 1024 * 1024
"""Bytes that a worker reads at once of a file part that is no longer in the page cache."""

READER_SILENCE_S = 60.0
_JOIN_BELOW_BYTES = 8 * 1024
_FIRST_WRITE_BYTES = 32 * 1024 - 31
"""Size of the first of the two writes of a large response.

This size avoids slow copies in a reader on the same machine. Linux stores written data in pieces of 32 KiB. If all
earlier data has been read, the first piece starts at the first written byte. The reader receives the four bytes of
the frame size first. It then copies the rest into memory that the C library allocates 16 bytes after a page start, so
the target is 12 bytes ahead of the source within the page. Some processors copy several times slower with such a small
distance. Linux does not fill up a piece with less than 32 bytes left. A first write of this size therefore ends the
piece early, and all later data has a distance that copies fast. In other cases the split costs one system call.
"""


class Outbox:
    """The unsent responses of one connection.

    Invariant: `_unsent_bytes` is the connection's part of `MemoryLimits.outgoing_bytes`. It is 0 unless the reader is
    slow.
    """

    has_failed = False
    """True if the outbox has ended the connection, because a part of a file could not be read."""

    def __init__(self, memory: MemoryLimits, workers: Workers, protocol: asyncio.BaseProtocol) -> None:
        """The outbox calls `resume_writing` of `protocol`, as a transport does."""
        self.is_paused = False
        """True while the peer takes no more data. Callers should add only what cannot wait."""
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
        """True if the responses should be sent before more are added, so that the transport can report backpressure."""
        return self._bytes > HIGH_WATER_BYTES

    @property
    def is_sending(self) -> bool:
        """True if there is unsent data that the transport does not have yet."""
        return bool(self._rest)

    def put(self, correlation_id: int, flexible: bool, answer: Answer) -> None:
        size = len(answer) if isinstance(answer, bytes) else sum(map(len, answer))
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
        """Write the collected responses to the socket or the transport, without copying them."""
        pieces, transport = self._pieces, self._transport
        if not pieces:
            return
        is_large, has_parts = self._bytes > HIGH_WATER_BYTES, self._has_parts or self._rest
        self._pieces = []
        self._bytes = 0
        self._has_parts = False
        if transport is None or transport.is_closing():
            return
        if has_parts:
            self._rest += pieces
            # Check the page cache again: the response may have waited long for earlier ones.
            if not self.is_paused and self._is_next_cached():
                self._send_rest(transport)
            assert self.is_paused or not self._rest or transport.is_closing(), "unsent data waits for a resume"
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
        """Continue sending after the peer has taken data. This may pause the outbox again."""
        self.is_paused = False
        transport = self._transport
        if self._rest and transport is not None:
            if self._is_next_cached():
                self._send_rest(transport)
            assert self.is_paused or not self._rest or transport.is_closing(), "unsent data waits for a resume"
        self._count_unsent()

    def is_stuck(self, now: float) -> bool:
        """True if the peer has taken no byte for too long."""
        if not self.is_paused:
            return False
        before = self._left_bytes
        self._count_unsent()
        if self._left_bytes < before:
            self._taken_at = now
        return now - self._taken_at > READER_SILENCE_S

    def _send_rest(self, transport: asyncio.Transport) -> None:
        """Send until everything is sent or the socket takes no more."""
        rest, fd = self._rest, self._socket_fd
        if fd is None:
            pieces = [piece if isinstance(piece, Buffer) else piece.read(len(piece)) for piece in rest]
            rest.clear()
            transport.writelines(pieces)
            return
        try:
            while rest:
                if not transport.get_write_buffer_size() and not _send_first(fd, rest):
                    transport.write(_take_piece(rest))
                if rest and transport.get_write_buffer_size():
                    transport.set_write_buffer_limits(high=0)
                    return
                if not self._is_next_cached():
                    return
        except OSError as error:
            self.has_failed = not isinstance(error, ConnectionError)
            transport.abort()
            return
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def _is_next_cached(self) -> bool:
        """True if the next file part can be sent from the page cache. Otherwise a worker reads its beginning."""
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
            self.has_failed = True
            self._transport.abort()
            return
        rest, data = self._rest, work.result()
        index = rest.index(part)
        rest[index] = data
        if len(data) < len(part):
            rest.insert(index + 1, part.behind(len(data)))
        self._protocol.resume_writing()

    def _count_unsent(self) -> None:
        transport, now = self._transport, 0
        if transport is not None and self.is_paused:
            self._left_bytes = transport.get_write_buffer_size()
            now = self._left_bytes + memory_of(self._rest)
            self._left_bytes += sum(map(len, self._rest))
        self._memory.outgoing_bytes += now - self._unsent_bytes
        self._unsent_bytes = now
        assert self._memory.outgoing_bytes >= now, "each connection counts its unsent bytes once"


def _send_first(fd: int, rest: deque[Piece]) -> bool:
    """Send the first pieces of `rest`, up to the end of the first file part.

    Returns true if the socket took all of it.
    """
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


def _take_piece(rest: deque[Piece]) -> Buffer:
    """Remove and return a small piece, which the transport sends to notice when the socket has room."""
    piece = rest.popleft()
    if isinstance(piece, Buffer):
        return piece
    data = piece.read(PIECE_BYTES)
    if len(data) < len(piece):
        rest.appendleft(piece.behind(len(data)))
    return data


def _write_now(fd: int, pieces: list[Buffer]) -> list[Buffer]:
    """Write as much as the socket takes without blocking, and return the unsent pieces."""
    first, behind = _cut(pieces, _FIRST_WRITE_BYTES)
    unsent = _write_part(fd, first)
    return unsent + behind if unsent else _write_part(fd, behind)


def _write_part(fd: int, pieces: list[Buffer]) -> list[Buffer]:
    try:
        sent = os.writev(fd, pieces)
    except OSError:
        return pieces  # The transport finds out whether the socket is full, accepts fewer pieces, or has failed.
    return _cut(pieces, sent)[1]


def _cut(pieces: list[Buffer], size: int) -> tuple[list[Buffer], list[Buffer]]:
    """Split the pieces after `size` bytes."""
    for number, piece in enumerate(pieces):
        if size < len(piece):
            view = memoryview(piece)
            before = [*pieces[:number], view[:size]] if size else pieces[:number]
            return before, [view[size:], *pieces[number + 1 :]]
        size -= len(piece)
    return pieces, []


def memory_of(answer: Answer | deque[Piece]) -> int:
    """Return the number of bytes that are in memory and not in a file."""
    if isinstance(answer, bytes):
        return len(answer)
    return sum(len(piece) for piece in answer if isinstance(piece, Buffer))
