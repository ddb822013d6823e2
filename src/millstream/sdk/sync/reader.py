# Written by scripts/sync.py from aio/reader.py: change that, and run it again.
"""Defines the base class of all readers: `with` starts them and finishes delivered messages at a clean exit."""

from types import TracebackType
from typing import Self

from millstream.sdk.sync.facade import Facade


class Reader(Facade):
    """Base of consumers, subscriptions and iterator readers, which `with` starts."""

    _is_done = False
    """Whether all delivered messages are finished."""

    def _begin(self) -> None:
        """Start reading; `with` awaits it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._begin()
        except BaseException as error:
            super().__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_done = error is None  # After an exception the last message may be half processed.
        super().__exit__(kind, error, trace)
