"""Reserves the ports of a process that is down, so that no other program takes them before the process restarts.

A held port is bound but not listening. Connections to it are refused, and the kernel does not assign it as a free port.
The process sets SO_REUSEADDR, as servers do, and so can bind the port while it is held.
"""

import os
import socket
import time
import weakref
from collections.abc import Iterable

WAIT_S = 5.0


class HeldPorts:
    """The held ports of one process on the loopback address. They become free when this object is garbage-collected."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        weakref.finalize(self, _close_all, self._descriptors)

    def hold(self, ports: Iterable[int]) -> None:
        """Hold these ports as soon as the process and its children have released them.

        A port that is still in use after `WAIT_S` belongs to another program and is skipped.
        """
        self.release()
        end_s = time.monotonic() + WAIT_S
        for port in ports:
            while not self._try_to_hold(port) and time.monotonic() < end_s:
                time.sleep(0.005)

    def _try_to_hold(self, port: int) -> bool:
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:
                return False
            self._descriptors.append(holder.detach())
        return True

    def release(self) -> None:
        _close_all(self._descriptors)


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
