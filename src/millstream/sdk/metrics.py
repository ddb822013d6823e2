"""Passes counters and durations of the client to a metrics object of the application; docs/sdk.md lists the names."""

import logging
from collections.abc import Mapping
from typing import Protocol

from millstream.sdk.arguments import wrong

_log = logging.getLogger("millstream.sdk.metrics")


class Metrics(Protocol):
    """The interface of the object in `connect(metrics=...)`.

    Its methods run on the client's event loop: they must return at once and must not raise. They are called for each
    request and each batch, not for single messages.
    """

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        """Add `amount` to the counter `name`."""
        ...

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        """Record one duration of `name`."""
        ...


class NoMetrics:
    """Discards all metrics; the default."""

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        pass

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        pass


NO_METRICS = NoMetrics()


def count_read(metrics: Metrics, topic: str, *, messages: int, size_bytes: int) -> None:
    """Count messages and bytes that were read from a topic."""
    metrics.count("messages_read", messages, {"topic": topic})
    metrics.count("bytes_read", size_bytes, {"topic": topic})


def check_metrics(given: object) -> None:
    """Raise INVALID_SETTING for an object without the methods of `Metrics`; None is allowed."""
    if given is not None and not all(callable(getattr(given, name, None)) for name in ("count", "observe")):
        raise wrong("metrics", given, "an object with the methods count and observe is expected")


class GuardedMetrics:
    """Wraps the application's metrics object: its exceptions are logged and do not affect the client."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        try:
            self._metrics.count(name, amount, labels)
        except BaseException:  # Even SystemExit, which would stop the event loop that all callers share.
            _log.exception("metrics object failed")

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        try:
            self._metrics.observe(name, seconds, labels)
        except BaseException:  # Even SystemExit, which would stop the event loop that all callers share.
            _log.exception("metrics object failed")
