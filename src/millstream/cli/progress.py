"""Shows a progress bar on the terminal during long operations."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHOWN_AFTER_S = 0.5


class ProgressBar:
    """A progress bar on standard error. It appears only on a terminal, and only after SHOWN_AFTER_S."""

    def __init__(self, what: str, total: int | None, *, in_bytes: bool = False, wanted: bool = True) -> None:
        self._what = what
        self._total = total
        self._in_bytes = in_bytes
        self._wanted = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._begun_s = time.monotonic()
        self._done = 0
        self._shown: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown[0].stop()

    def advance(self, amount: int) -> None:
        self._done += amount
        if not self._wanted:
            return
        if self._shown is None:
            if time.monotonic() - self._begun_s < SHOWN_AFTER_S:
                return
            self._shown = self._show()
        progress, task = self._shown
        progress.update(task, completed=self._done)

    def _show(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TransferSpeedColumn,
        )

        amount = (DownloadColumn(), TransferSpeedColumn()) if self._in_bytes else (MofNCompleteColumn(),)
        progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *amount,
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        progress.start()
        return progress, progress.add_task(self._what, total=self._total)
