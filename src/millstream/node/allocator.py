"""The C library's allocator, told how a broker uses memory.

A broker takes and frees buffers of about a megabyte all day. By default the allocator maps each of them anew, or gives
the end of the heap back as soon as a little of it is free, and the kernel then clears every page again before its next
use: that was most of the broker's CPU time under a produce load.
"""

import ctypes
import logging

log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_MAPPED_FROM_BYTES = 16 * 1024 * 1024
"""Larger buffers are rare, and go straight back to the system."""

_KEPT_FREE_BYTES = 64 * 1024 * 1024
"""As much of the heap's end stays with the process for the next load."""


def keep_freed_memory() -> None:
    """Keep freed buffers for the next ones. Does nothing where the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        log.debug("the allocator cannot be told to keep freed memory here")
        return
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE_BYTES)
