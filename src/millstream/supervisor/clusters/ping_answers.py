"""Answers the pings of the supervisor in the broker of a local cluster, with the problems of this broker."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from millstream.model.errors import MillstreamError
from millstream.process.control_protocol import Control, ProblemSource
from millstream.process.parent_watch import CONTROL_VARIABLE

RECONNECT_S = 5.0


@asynccontextmanager
async def answering_pings(problems: ProblemSource) -> AsyncIterator[None]:
    """Answers pings during the context. Does nothing in a process without a supervisor's control socket."""
    path = os.environ.get(CONTROL_VARIABLE)
    answering = asyncio.create_task(_answer(Control(Path(path)), problems)) if path else None
    try:
        yield
    finally:
        if answering is not None:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)


async def _answer(control: Control, problems: ProblemSource) -> None:
    while True:
        try:
            async for _ in control.watch(problems=problems):
                pass  # The broker needs no other clusters.
        except MillstreamError:
            pass  # The supervisor reports that its socket is not open.
        await asyncio.sleep(RECONNECT_S)
