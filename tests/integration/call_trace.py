"""Records which functions of the project run, in the order of their calls, in all threads."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import millstream

_SOURCES = f"{Path(millstream.__file__).parent}/"
_HARNESS = "testing/"


class CallTrace:
    """The recorded calls, as `package/module.py:Class.function`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.between_modules: dict[str, None] = {}
        """The functions that were called from another module of the project, or from outside of it."""
        self._is_recording = False

    @contextmanager
    def in_new_threads(self) -> Iterator[None]:
        """Record calls, also in threads that are started within the block."""
        threading.setprofile(self._called)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        before = sys.getprofile()
        self._is_recording = True
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)
            self._is_recording = False

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not self._is_recording:
            return
        code = frame.f_code
        if code.co_filename.startswith(_SOURCES):
            name = code.co_filename.removeprefix(_SOURCES)
            if not name.startswith(_HARNESS):
                called = f"{name}:{code.co_qualname}"
                self.calls.append(called)
                caller = frame.f_back
                if caller is None or caller.f_code.co_filename != code.co_filename:
                    self.between_modules[called] = None
