"""Ends a child process when its parent ends for any reason.

The kernel sends the signal, so no process is left behind if the parent was killed or the child hangs.

This module uses the standard library only, because the query process imports it.
"""

import os
import signal

PARENT_VARIABLE = "MILLSTREAM_PARENT"
"""Names the parent process that a child must end with."""
CONTROL_VARIABLE = "MILLSTREAM_PARENT_CONTROL"
"""Names the control socket through which a child broker answers the pings of its supervisor."""

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Makes the kernel kill this process when the parent named in its environment ends. Exits if it has ended."""
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None:
        return
    import ctypes  # Only a child process needs it.

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        os._exit(1)


def environment_of_child() -> dict[str, str]:
    """Returns this process's environment for a child that must end with this process."""
    return {**os.environ, PARENT_VARIABLE: str(os.getpid())}
