"""Calls a signal handler at a chosen point of a program at which CPython runs signal handlers.

CPython runs a signal handler after a call of a C function, at a backward jump, and when a function or generator is
entered. An exception of the handler is raised there. Returning from one Python function to another is no such point.
"""

import dis
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_POINTS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD"})
_ENTRY = "RESUME"


class SignalPoint:
    """Calls `handler` at point number `at` (from 0) in functions of `files`, once."""

    def __init__(
        self, at: int, handler: Callable[[int, FrameType | None], object], files: Collection[str | None]
    ) -> None:
        self.passed = 0
        """Number of points that were passed."""
        self.where = ""
        """The function and line of the point."""
        self._at = at
        self._handler = handler
        self._files = files
        self._last: dict[FrameType, str] = {}
        self._is_paused = False

    @property
    def was_reached(self) -> bool:
        return self.passed > self._at

    @contextmanager
    def active(self) -> Iterator[None]:
        before = sys.gettrace()
        if not self.was_reached:
            sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            self._last.clear()  # The frames refer to this object: without the cycles, nothing waits for the collector.

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pass no points meanwhile: another thread runs this."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_back is not None and self._last.get(frame.f_back) == "CALL":
            self._last[frame.f_back] = ""  # It called a Python function.
        if self._is_paused or frame.f_code.co_filename not in self._files:
            return None
        self._last[frame] = _ENTRY
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            last = self._last.get(frame, "")
            self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if last in _POINTS or last == _ENTRY:
                self.passed += 1
                if self.was_reached:
                    sys.settrace(None)
                    self.where = f"{frame.f_code.co_name}:{frame.f_lineno}"
                    self._handler(signal.SIGALRM, frame)
        return self._stepped
