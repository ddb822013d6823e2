"""Tests that a request completes once each of its appends is acknowledged, refused or timed out."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.append_result import AppendResult
from millstream.partition.pending_appends import AppendDeadlines, PendingAppends
from millstream.partition.put_deduplication import KnownIds
from millstream.partition.watermark import Acknowledgement
from millstream.testing.simulated.loop import SimulatedLoop

REFUSED = MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "refused")


class Outcome:
    """Records the outcome of one append."""

    def __init__(self) -> None:
        self.told: list[AppendResult | ErrorCode] = []

    def stored(self, appended: AppendResult) -> None:
        self.told.append(appended)

    def failed(self, error: BaseException) -> None:
        assert isinstance(error, MillstreamError)
        self.told.append(error.code)


class Request:
    def __init__(self) -> None:
        self.pending = PendingAppends(AppendDeadlines())
        self.finished = 0

    def begin(self, timeout_ms: int = 1000) -> None:
        self.pending.begin(timeout_ms, self._finish)

    def _finish(self) -> None:
        self.finished += 1


def in_simulated_time(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await story()

    loop = SimulatedLoop()
    try:
        loop.run_until_complete(whole())
    finally:
        loop.end()


@pytest.mark.parametrize("error", [None, REFUSED])
def test_a_request_ends_with_its_last_acknowledgement(error: MillstreamError | None) -> None:
    async def story() -> None:
        request, first, second = Request(), Acknowledgement(0), Acknowledgement(1)
        outcomes = [Outcome(), Outcome()]
        request.pending.add(first, outcomes[0])
        request.pending.add(second, outcomes[1])
        request.begin()
        first.wake()
        assert request.finished == 0
        if error is None:
            second.wake()
        else:
            second.fail(error)
        assert request.finished == 1
        await asyncio.sleep(5)
        assert request.finished == 1
        assert [outcome.told for outcome in outcomes] == [[], [] if error is None else [error.code]]

    in_simulated_time(story)


def test_the_timeout_applies_only_to_acknowledgements() -> None:
    async def story() -> None:
        request, written, opened = Request(), Outcome(), Outcome()
        acknowledgement = Acknowledgement(0)
        opening: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        request.pending.add(acknowledgement, written)
        request.pending.open(opening, opened)
        request.begin(1000)
        await asyncio.sleep(2)
        assert (written.told, request.finished) == ([ErrorCode.REQUEST_TIMED_OUT], 0)
        late = AppendResult(1, 0, Acknowledgement(1))
        opening.set_result(late)
        await asyncio.sleep(0)
        assert (opened.told, request.finished) == ([late, ErrorCode.REQUEST_TIMED_OUT], 1)
        acknowledgement.wake()
        assert (written.told, request.finished) == ([ErrorCode.REQUEST_TIMED_OUT], 1)

    in_simulated_time(story)


def test_known_message_ids_are_reported_once_the_first_copies_are_acknowledged() -> None:
    async def story() -> None:
        request, outcome, acknowledgement = Request(), Outcome(), Acknowledgement(0)
        opening: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        request.pending.open(opening, outcome)
        request.begin()
        opening.set_exception(KnownIds("known", [(0, 0)], acknowledgement))
        await asyncio.sleep(0)
        assert (outcome.told, request.finished) == ([ErrorCode.DUPLICATE_MESSAGE_ID], 0)
        acknowledgement.wake()
        assert request.finished == 1

    in_simulated_time(story)


def test_requests_time_out_in_the_order_of_their_deadlines() -> None:
    async def story() -> None:
        deadlines, ended = AppendDeadlines(), list[int]()
        for timeout_ms in (3000, 1000, 2000):
            pending = PendingAppends(deadlines)
            pending.add(Acknowledgement(0), Outcome())
            pending.begin(timeout_ms, lambda timeout_ms=timeout_ms: ended.append(timeout_ms))  # type: ignore[misc]
        await asyncio.sleep(2.5)
        assert ended == [1000, 2000]
        await asyncio.sleep(1)
        assert ended == [1000, 2000, 3000]

    in_simulated_time(story)
