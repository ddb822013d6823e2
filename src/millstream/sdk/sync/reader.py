# Written by scripts/sync.py from aio/reader.py: change that, and run it again.
"""What all who read have in common: `with` starts them, and tells how what they had in work came to its end."""

from types import TracebackType
from typing import Self

from millstream.sdk.sync.facade import Facade


class Reader(Facade):
    """A public class that reads from the moment it is entered."""

    _is_done = False
    """Whether everything that was handed out is finished."""

    def _begin(self) -> None:
        """What `with` waits for."""
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
        self._is_done = error is None  # Otherwise what is in work may be half done.
        super().__exit__(kind, error, trace)
