"""Configures the C library's memory allocator for the way a broker uses memory.

A broker constantly allocates and frees buffers of about a megabyte. By default the allocator maps each buffer
separately, or returns the end of the heap to the kernel as soon as a little of it is free. The kernel then clears every
page again before its next use. Under a produce load, this took most of the broker's CPU time.
"""

import ctypes
import logging

log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_MAPPED_FROM_BYTES = 16 * 1024 * 1024
"""Size from which a buffer is mapped separately and returned to the kernel when it is freed. Such buffers are rare."""

_KEPT_FREE_BYTES = 64 * 1024 * 1024
"""Maximum free memory at the end of the heap that the process keeps for later use."""


def keep_freed_memory() -> None:
    """Makes the allocator keep freed buffers for reuse. Does nothing if the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        log.debug("memory allocator not configured", extra={"error": "the C library has no mallopt"})
        return
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE_BYTES)
