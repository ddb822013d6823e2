"""Waits for conditions that clients fulfil asynchronously."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_PATIENCE_S = 90.0
_PAUSE_S = 0.05


def eventually(look: Callable[[], T], wanted: Callable[[T], bool], what: str) -> T:
    """Poll `look` until its value is as `wanted` and return it; AssertionError with the last value after a timeout."""
    end_s = time.monotonic() + _PATIENCE_S
    while not wanted(seen := look()):
        assert time.monotonic() < end_s, f"not in time: {what}; last seen: {seen!r}"
        time.sleep(_PAUSE_S)
    return seen
