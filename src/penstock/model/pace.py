"""How often the kernel wakes a connection while a large answer comes in."""

import asyncio
import socket
import sys

WAKE_BYTES = 1024 * 1024
"""After so many bytes of a large answer at the latest."""
LARGE_BYTES = 64 * 1024
"""An answer that lacks less is taken as it comes."""


class Pace:
    """Lets a large answer come in large parts: to be woken for each piece costs more than the piece, the more so where
    another thread of the program has the interpreter.

    Never is more waited for than the answer still lacks, so that whatever a broker sends is received, and an end of the
    connection is noticed as ever. Only Linux is known to see to it that what is waited for can also arrive. Bytes
    of TLS are not those of an answer, so there it is left alone; so it is in a simulation, which has no sockets.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        is_known = sys.platform == "linux" and transport.get_extra_info("sslcontext") is None
        self._socket: socket.socket | None = transport.get_extra_info("socket") if is_known else None
        self._least = 1

    def set(self, missing_bytes: int) -> None:
        """The answer that comes in lacks so many bytes, 0 between answers. The connection must be open."""
        least = min(missing_bytes, WAKE_BYTES) if missing_bytes >= LARGE_BYTES else 1
        if least != self._least and self._socket is not None:
            self._least = least
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
