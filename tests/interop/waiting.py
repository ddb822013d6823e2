"""Waiting for what clients bring about in their own time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_PATIENCE_S = 90.0
_PAUSE_S = 0.05


def eventually(look: Callable[[], T], wanted: Callable[[T], bool], what: str) -> T:
    """What `look` sees once it is as `wanted`; AssertionError, with what was seen last, when it never gets there."""
    end_s = time.monotonic() + _PATIENCE_S
    while not wanted(seen := look()):
        assert time.monotonic() < end_s, f"not in time: {what}; last seen: {seen!r}"
        time.sleep(_PAUSE_S)
    return seen
