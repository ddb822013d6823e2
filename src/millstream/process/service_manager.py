"""Reports the state of this process to systemd, if systemd started it with `Type=notify` (sd_notify).

The protocol is one datagram of text lines to the socket that NOTIFY_SOCKET names.
"""

import logging
import os
import socket

from millstream.process.parent_watch import PARENT_VARIABLE

log = logging.getLogger(__name__)

SOCKET_VARIABLE = "NOTIFY_SOCKET"
READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Sends a state to the service manager. Does nothing without one, and in the child of another process.

    Never blocks: if the socket cannot take the datagram, the failure is logged.
    """
    name = os.environ.get(SOCKET_VARIABLE)
    if not name or PARENT_VARIABLE in os.environ:
        return
    address = "\0" + name[1:] if name.startswith("@") else name  # An abstract socket has no file.
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), address)
    except OSError as problem:
        log.warning("service manager not notified", extra={"socket": name, "state": state, "error": str(problem)})
