"""What all who read have in common: `async with` starts them, and tells how what they had in work came to its end."""

from types import TracebackType
from typing import Self

from millstream.sdk.aio.facade import AsyncFacade


class AsyncReader(AsyncFacade):
    """A public class that reads from the moment it is entered."""

    _is_done = False
    """Whether everything that was handed out is finished."""

    async def _begin(self) -> None:
        """What `async with` waits for."""
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
        self._is_done = error is None  # Otherwise what is in work may be half done.
        await super().__aexit__(kind, error, trace)
