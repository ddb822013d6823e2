"""Keeps ports for a process that is down, so that no other program gets them before it is started again.

A kept port is bound but not listening: clients are refused, the kernel gives it to nobody who asks for any free port,
and the process, which sets SO_REUSEADDR as servers do, can bind it while it is kept.
"""

import os
import socket
import time
import weakref
from collections.abc import Iterable

WAIT_S = 5.0


class HeldPorts:
    """The ports of one process on the loopback address. They are free again when this object is gone."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        weakref.finalize(self, _close_all, self._descriptors)

    def hold(self, ports: Iterable[int]) -> None:
        """Keep these ports, as soon as the process and its children are off them.

        A port that stays in use belongs to another program by now, and is left out.
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
