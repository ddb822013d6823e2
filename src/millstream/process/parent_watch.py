"""A process that ends with the one that started it, however that one ends.

The kernel sends the signal, so neither a parent that was killed nor a child that hangs leaves anything behind.
"""

import ctypes
import os
import signal

from millstream.process.settings import PARENT_VARIABLE

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have this process killed when its parent ends, if its environment names one; exits where that is over already."""
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        os._exit(1)


def environment_of_child() -> dict[str, str]:
    """Our environment, for a child that is to end with us."""
    return {**os.environ, PARENT_VARIABLE: str(os.getpid())}
