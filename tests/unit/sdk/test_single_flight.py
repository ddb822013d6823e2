"""Tests that a shared operation runs once at a time, and that its failure is raised once."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.shared_start import SharedStart
from millstream.sdk.single_flight import SingleFlight
from millstream.testing.simulated.loop import SimulatedLoop


class Operation:
    """An operation that takes a second and ends with the next of its outcomes."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.runs = 0
        self.under_way = self.under_way_max = 0
        self._outcomes = list(outcomes)

    async def __call__(self) -> None:
        self.runs += 1
        self.under_way += 1
        self.under_way_max = max(self.under_way, self.under_way_max)
        try:
            await asyncio.sleep(1.0)
        finally:
            self.under_way -= 1
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if outcome is not None:
            raise outcome


def run_in_simulation(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(body())
        assert loop.settle_failures() == []
    finally:
        loop.end()


REFUSED = MillstreamError(ErrorCode.LEADER_NOT_AVAILABLE, "refused")


def test_callers_share_one_run_and_each_gets_its_failure() -> None:
    async def body() -> None:
        operation = Operation(REFUSED)
        flight = SingleFlight(operation, "operation")
        runs = await asyncio.gather(*(flight.wait() for _ in range(3)))
        assert [run is not None and run.exception() for run in runs] == [REFUSED] * 3
        assert not flight.is_under_way
        run = await flight.wait()
        assert run is not None
        assert (run.exception(), operation.runs, operation.under_way_max) == (None, 2, 1)

    run_in_simulation(body)


def test_a_run_continues_after_its_callers_and_the_next_gets_its_failure() -> None:
    async def body() -> None:
        operation = Operation(REFUSED)
        flight = SingleFlight(operation, "operation")
        caller = asyncio.create_task(flight.wait())
        assert await flight.wait(Deadline(0.2)) is None
        caller.cancel()
        await asyncio.sleep(10.0)
        assert (operation.runs, flight.is_under_way) == (1, True)
        with pytest.raises(MillstreamError, match="refused"):
            flight.accept_result()
        flight.accept_result()
        assert (operation.runs, flight.is_under_way) == (1, False)

    run_in_simulation(body)


def test_an_unexpected_exception_is_logged_and_raised_as_client_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        flight = SingleFlight(Operation(ZeroDivisionError("a bug")), "operation")
        run = await flight.wait()
        assert run is not None
        error = run.exception()
        assert isinstance(error, MillstreamError)
        assert error.code is ErrorCode.CLIENT_FAILED

    with caplog.at_level(logging.ERROR):
        run_in_simulation(body)
    assert any(record.exc_info for record in caplog.records)


def test_a_close_ends_the_run_and_its_callers_get_client_closed() -> None:
    async def body() -> None:
        operation = Operation()
        flight = SingleFlight(operation, "operation")
        caller = asyncio.create_task(flight.wait())
        await asyncio.sleep(0.5)
        await flight.close()
        assert operation.under_way == 0
        with pytest.raises(MillstreamError) as caught:
            await caller
        assert caught.value.code is ErrorCode.CLIENT_CLOSED

    run_in_simulation(body)


def test_a_successful_start_does_not_run_again() -> None:
    async def body() -> None:
        operation = Operation(REFUSED)
        start = SharedStart(operation, "start")
        with pytest.raises(MillstreamError, match="refused"):
            await start.wait()
        assert (start.is_done, await start.wait_until(Deadline(0.5))) == (False, False)
        await asyncio.gather(start.wait(), start.wait())
        await start.wait()
        assert (operation.runs, operation.under_way_max, start.is_done) == (2, 1, True)

    run_in_simulation(body)
