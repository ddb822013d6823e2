"""How often the kernel wakes a connection while a large answer comes in."""

import asyncio
import os
import re
import socket
import sys

WAKE_BYTES = 1024 * 1024
"""A connection is woken once so many bytes of a large answer lie ready."""
LARGE_BYTES = 64 * 1024
"""An answer that lacks less is taken as it comes."""


def _makes_room() -> bool:
    """Linux does since 5.12; before, some ways to send let a connection wait for what its buffer could not hold."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    return found is not None and (int(found[1]), int(found[2])) >= (5, 12)


_MAKES_ROOM = _makes_room()


class Pace:
    """Lets a large answer come in large parts: to be woken for each piece costs more than the piece, the more so where
    another thread of the program has the interpreter.

    It never waits for more than the answer still lacks, so all of it arrives, and an end of the connection is noticed
    as before. Bytes of TLS are not those of an answer, so with TLS it does nothing; nor does it in a simulation, which
    has no sockets, or where the kernel is not known to make room for what is waited for.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        is_plain = transport.get_extra_info("sslcontext") is None
        self._socket: socket.socket | None = transport.get_extra_info("socket") if is_plain and _MAKES_ROOM else None
        self._least = 1

    def set(self, missing_bytes: int) -> None:
        """The answer that comes in lacks so many bytes, 0 between answers. The connection must be open."""
        least = min(missing_bytes, WAKE_BYTES) if missing_bytes >= LARGE_BYTES else 1
        if least != self._least and self._socket is not None:
            self._least = least
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            except OSError:  # A sandbox may refuse it.
                self._socket = None
