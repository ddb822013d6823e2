"""Tests running coroutines concurrently and cancelling those that are left."""

import asyncio

import pytest

from millstream.process.concurrency import together, until_first


class Works:
    """Coroutines that record when they end."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def endless(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("endless")

    async def short(self) -> None:
        await asyncio.sleep(0)
        self.ended.append("short")

    async def failing(self) -> None:
        await asyncio.sleep(0)
        raise ValueError("failed")


def test_together_waits_for_all() -> None:
    works = Works()
    asyncio.run(together(works.short(), works.short()))
    assert works.ended == ["short", "short"]


def test_together_raises_the_first_failure_and_ends_the_others() -> None:
    works = Works()
    with pytest.raises(ValueError, match="failed"):
        asyncio.run(together(works.endless(), works.failing()))
    assert works.ended == ["endless"]


def test_until_first_cancels_the_others_when_one_has_completed() -> None:
    works = Works()
    asyncio.run(until_first(works.endless(), works.short()))
    assert works.ended == ["short", "endless"]


def test_a_cancelled_call_leaves_nothing_running() -> None:
    works = Works()

    async def cancelled() -> None:
        task = asyncio.create_task(together(works.endless(), works.endless()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert works.ended == ["endless", "endless"]
