"""Implements `on_bad_value`: the reaction of a consumer or a subscription to a message whose value cannot be decoded.

The caller's thread decodes. It counts the messages that it skips; the engine's event loop takes these counts for the
metrics.
"""

import logging
from collections import deque
from collections.abc import Callable

from millstream.process.log_event import LogEvent
from millstream.records.message import Message
from millstream.sdk.arguments import check_callback, wrong
from millstream.sdk.consuming.decoding import Decode, UndecodableError
from millstream.sdk.metrics import Metrics

RAISE = "raise"
SKIP = "skip"
LOG_INTERVAL_S = 60.0

OnBadValue = str | Callable[["Message[bytes]", UndecodableError], object]
"""The reaction to an undecodable value: "raise", "skip", or a function of the message and the error."""

_log = logging.getLogger("millstream.sdk.consumer")


class SkippingDecoder:
    """Decodes messages, and passes each undecodable one to `on_bad_value` or skips it.

    An exception of the function is raised in the caller; the reader continues after the message.
    """

    def __init__(
        self,
        decode: Decode,
        on_bad_value: Callable[["Message[bytes]", UndecodableError], object] | None,
        now_s: Callable[[], float],
    ) -> None:
        self._decode = decode
        self._on_bad_value = on_bad_value
        self._now_s = now_s
        self._skipped: deque[str] = deque()
        self._unlogged = 0
        self._logged_s: float | None = None
        self._last: UndecodableError | None = None

    def __call__(self, message: Message) -> Message | None:
        """Return the decoded message, or None if it is skipped."""
        try:
            return self._decode(message)
        except UndecodableError as error:
            if self._on_bad_value is not None:
                self._on_bad_value(message, error)
            self._skipped.append(message.topic)
            if self._on_bad_value is None:
                self._note(error)
            return None

    def take_skipped(self) -> list[str]:
        """Return the topics of the messages that were skipped since the last call."""
        return [self._skipped.popleft() for _ in range(len(self._skipped))]

    def _note(self, error: UndecodableError) -> None:
        self._unlogged += 1
        self._last = error
        now_s = self._now_s()
        if self._logged_s is None or now_s - self._logged_s >= LOG_INTERVAL_S:
            self._logged_s = now_s
            self.log_skipped()

    def count_skipped(self, metrics: Metrics) -> None:
        """Count the messages that were skipped since the last call."""
        for topic in self.take_skipped():
            metrics.count("messages_undecodable", 1, {"topic": topic})

    def log_skipped(self) -> None:
        """Log the number of messages that were skipped and not logged yet."""
        if self._last is not None:
            _log.warning(LogEvent("undecodable messages skipped", count=self._unlogged, error=self._last.detail))
        self._unlogged = 0
        self._last = None


def bad_value_decoder(
    decode: Decode | None, on_bad_value: OnBadValue, now_s: Callable[[], float]
) -> Decode | SkippingDecoder | None:
    """Return a decoder that treats undecodable values as configured; raises INVALID_SETTING for another choice."""
    if isinstance(on_bad_value, str):
        if on_bad_value not in (RAISE, SKIP):
            raise wrong("on_bad_value", on_bad_value, 'it must be "raise", "skip" or a function')
    elif on_bad_value is None:
        raise wrong("on_bad_value", on_bad_value, 'it must be "raise", "skip" or a function')
    else:
        check_callback("on_bad_value", on_bad_value)
    if decode is None or on_bad_value == RAISE:
        return decode
    return SkippingDecoder(decode, None if isinstance(on_bad_value, str) else on_bad_value, now_s)
