"""Runs coroutines concurrently; none of them outlives the call."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """Runs coroutines until all are done. The first failure cancels the others and is raised."""
    await _run(works, asyncio.FIRST_EXCEPTION)


async def until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Runs coroutines until one is done, then cancels the others. If the one has failed, raises its exception."""
    await _run(works, asyncio.FIRST_COMPLETED)


async def _run(works: Iterable[Coroutine[Any, Any, None]], until: str) -> None:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=until)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
