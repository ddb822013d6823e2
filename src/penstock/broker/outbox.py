"""The outgoing half of a connection: answers on their way to the transport, and how fast the peer takes them.

A large answer goes to the socket itself, in two writes, while the transport has nothing else to send; the transport
gets what the socket does not take, and meets whatever error there is.
"""

import asyncio
import os

from penstock.broker.memory import Memory
from penstock.broker.request import Answer
from penstock.wire.framing import Buffer, frame_response

HIGH_WATER_BYTES = 64 * 1024
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
    """Invariant: `_unsent_bytes` is its connection's part of `Memory.outgoing_bytes`, 0 unless its reader is behind."""

    def __init__(self, memory: Memory) -> None:
        self.is_paused = False
        """The transport has enough; nothing should be added that can wait."""
        self._memory = memory
        self._transport: asyncio.Transport | None = None
        self._pieces: list[Buffer] = []
        self._bytes = 0
        self._socket_fd: int | None = None
        self._unsent_bytes = 0
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
        self._count_unsent()

    @property
    def is_full(self) -> bool:
        """Large answers leave one by one, so that the transport can say when it has enough."""
        return self._bytes > HIGH_WATER_BYTES

    def put(self, correlation_id: int, flexible: bool, answer: Answer) -> None:
        size = size_of(answer)
        self._bytes += size
        head = frame_response(correlation_id, flexible, size)
        if not isinstance(answer, bytes):
            self._pieces.append(head)
            self._pieces += answer
        elif size < _JOIN_BELOW_BYTES:
            self._pieces.append(head + answer)
        else:
            self._pieces += (head, answer)

    def send(self) -> None:
        """Hand over what was put; nothing of it is copied here."""
        pieces, transport = self._pieces, self._transport
        if not pieces:
            return
        is_large = self.is_full
        self._pieces = []
        self._bytes = 0
        if transport is None or transport.is_closing():
            return
        if is_large and self._socket_fd is not None and not transport.get_write_buffer_size():
            pieces = _write_now(self._socket_fd, pieces)
            if not pieces:
                return
        if len(pieces) == 1:
            transport.write(pieces[0])
        else:
            transport.writelines(pieces)
        if self.is_paused:
            self._count_unsent()

    def pause(self) -> None:
        self.is_paused = True
        self._taken_at = asyncio.get_running_loop().time()
        self._count_unsent()

    def resume(self) -> None:
        self.is_paused = False
        self._count_unsent()

    def is_stuck(self, now: float) -> bool:
        """Whether the peer has taken no byte for too long."""
        if not self.is_paused:
            return False
        before = self._unsent_bytes
        self._count_unsent()
        if self._unsent_bytes < before:
            self._taken_at = now
        return now - self._taken_at > READER_SILENCE_S

    def _count_unsent(self) -> None:
        transport = self._transport
        now = transport.get_write_buffer_size() if transport is not None and self.is_paused else 0
        self._memory.outgoing_bytes += now - self._unsent_bytes
        self._unsent_bytes = now


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
