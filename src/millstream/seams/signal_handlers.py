"""Recognizes exceptions that signal handlers of this process have raised."""

import signal
import threading
import traceback
from functools import partial
from types import CodeType


def raised_by_signal_handler(error: BaseException) -> bool:
    """True if a signal handler raised the exception, for example TimeoutError after an alarm.

    A signal handler runs between two instructions of whatever the main thread is doing. Its exception says nothing
    about that work.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code(handler: object) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    if not callable(handler):
        return None
    call = handler if hasattr(handler, "__code__") else handler.__call__
    return getattr(call, "__code__", None)
