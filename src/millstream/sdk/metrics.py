"""What a client does, told to an object of the user's; docs/sdk.md has the names."""

import logging
from collections.abc import Mapping
from typing import Protocol

from millstream.sdk.arguments import wrong

_log = logging.getLogger("millstream.sdk.metrics")


class Metrics(Protocol):
    """Handed to `connect(metrics=...)`. Called on the client's event loop: it must return at once and not raise.

    It is called for each request and each batch, never for a single message.
    """

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        """So many more of what `name` says."""
        ...

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        """How long it took this time."""
        ...


class NoMetrics:
    """For those who do not want to know."""

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        pass

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        pass


NO_METRICS = NoMetrics()


def count_read(metrics: Metrics, topic: str, messages: int, size_bytes: int) -> None:
    """That so much of a topic was read, whichever way."""
    metrics.count("messages_read", messages, {"topic": topic})
    metrics.count("bytes_read", size_bytes, {"topic": topic})


def check_metrics(given: object) -> None:
    """INVALID_SETTING for what cannot be told; None is nobody."""
    if given is not None and not all(callable(getattr(given, name, None)) for name in ("count", "observe")):
        raise wrong("metrics", given, "an object with the methods count and observe is expected")


class GuardedMetrics:
    """The user's object, whose failures are logged and harm nobody."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        try:
            self._metrics.count(name, amount, labels)
        except BaseException:  # The thread belongs to everybody who uses the client.
            _log.exception("the metrics object failed")

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        try:
            self._metrics.observe(name, seconds, labels)
        except BaseException:  # The thread belongs to everybody who uses the client.
            _log.exception("the metrics object failed")
