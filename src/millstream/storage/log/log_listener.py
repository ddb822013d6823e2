"""Defines the events of a log, for the object that derives state from the log and answers its writers."""

from collections.abc import Sequence
from typing import Protocol

from millstream.model.ids import Offset
from millstream.records.header import BatchHeader


class LogListener(Protocol):
    """Receives a log's transitions on the event loop, after each of them."""

    def written(self, headers: Sequence[BatchHeader]) -> None:
        """Batches were written, in this order. They are not flushed yet."""
        ...

    def flushed(self) -> None:
        """The log's flushed_offset may have increased."""
        ...

    def failed(self, offset: Offset, error: BaseException) -> None:
        """Batches from `offset` on are lost, or their state on disk is unknown."""
        ...

    def truncated(self) -> None:
        """The log was truncated after a failed flush, so derived state must be rebuilt."""
        ...


class _Nobody:
    """Ignores all events. It is the listener of a log that is not served yet."""

    def written(self, headers: Sequence[BatchHeader]) -> None:
        pass

    def flushed(self) -> None:
        pass

    def failed(self, offset: Offset, error: BaseException) -> None:
        pass

    def truncated(self) -> None:
        pass


NOBODY: LogListener = _Nobody()
