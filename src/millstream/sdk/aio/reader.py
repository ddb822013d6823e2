"""Defines the base class of all readers: `async with` starts them and finishes delivered messages at a clean exit."""

from types import TracebackType
from typing import Self

from millstream.sdk.aio.facade import AsyncFacade


class AsyncReader(AsyncFacade):
    """Base of consumers, subscriptions and iterator readers, which `async with` starts."""

    _is_done = False
    """Whether all delivered messages are finished."""

    async def _begin(self) -> None:
        """Start reading; `async with` awaits it."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self._begin()
        except BaseException as error:
            await super().__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_done = error is None  # After an exception the last message may be half processed.
        await super().__aexit__(kind, error, trace)
