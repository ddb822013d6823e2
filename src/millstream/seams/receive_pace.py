"""Reduces how often the kernel wakes a connection while it receives a large response."""

import asyncio
import os
import re
import socket
import sys

WAKE_BYTES = 1024 * 1024
"""The kernel wakes a connection when this many bytes of a large response are ready."""
LARGE_BYTES = 64 * 1024
"""A response with fewer missing bytes is received as it arrives."""


def _makes_room() -> bool:
    """Return True if the kernel enlarges the receive buffer for SO_RCVLOWAT, as Linux does since 5.12.

    On older kernels, some senders let a connection wait for more bytes than its buffer can hold.
    """
    found = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    return found is not None and (int(found[1]), int(found[2])) >= (5, 12)


_MAKES_ROOM = _makes_room()


class Pace:
    """Receives a large response in large parts.

    Waking for each small piece costs more than handling the piece, and more still while another thread holds the
    interpreter lock.

    The connection never waits for more bytes than the rest of the response has. So the response arrives completely, and
    a closed connection is noticed as usual. It does nothing with TLS, where the bytes on the socket are not those of
    the response, in a simulation, which has no sockets, and on kernels that may not enlarge the receive buffer.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        is_plain = transport.get_extra_info("sslcontext") is None
        self._socket: socket.socket | None = transport.get_extra_info("socket") if is_plain and _MAKES_ROOM else None
        self._least = 1

    def set(self, missing_bytes: int) -> None:
        """Set the number of bytes of the current response that have not arrived; 0 between responses.

        The connection must be open.
        """
        least = min(missing_bytes, WAKE_BYTES) if missing_bytes >= LARGE_BYTES else 1
        if least != self._least and self._socket is not None:
            self._least = least
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            except OSError:  # A sandbox may forbid the option.
                self._socket = None
