"""Tests long polls: the time of the response, wake-ups, and clean-up."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from builders.served import until
from millstream.broker.dispatch.request import Answer, DeferredResponse, Result, Work
from millstream.broker.long_poll import poll
from millstream.model.waiters import Cancel

LONG_MS = 60_000


class Pass:
    """A pass that finds `found`. Its first `unfinished` steps stop at data that must be awaited."""

    def __init__(self, log: "Log") -> None:
        self.found = log.messages if log.memory else 0
        self.is_hungry = log.messages > 0 and not log.memory
        self._log = log
        self._left = log.steps

    @property
    def is_finished(self) -> bool:
        return self._left == 0

    @property
    def is_enough(self) -> bool:
        return self.found >= 2

    async def go_on(self) -> None:
        await asyncio.sleep(0)
        self._left -= 1

    def waits(self, wake: Callable[[], None]) -> Iterable[list[Cancel]]:
        self._log.waiting.append(wake)
        yield [lambda: self._log.waiting.remove(wake)]


class Log:
    """A request for two messages and the log that it reads."""

    def __init__(self, steps: int = 0) -> None:
        self.messages = 0
        self.memory = True
        self.steps = steps
        self.reads = 0
        self.waiting: list[Callable[[], None]] = []
        self.error: Exception | None = None

    def read(self) -> Pass:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return Pass(self)

    def answer(self, done: Pass) -> Answer:
        return b"%d" % done.found

    def write(self) -> None:
        self.messages += 1
        for wake in list(self.waiting):
            wake()


class Waiting:
    """Records the response to a poll, as a connection does."""

    def __init__(self, result: Result) -> None:
        self.answers: asyncio.Queue[Answer | None] = asyncio.Queue()
        if isinstance(result, DeferredResponse):
            self.later = result
            result.when_done(self._done, self._start)
        else:
            assert isinstance(result, Work)
            self.later = DeferredResponse(result.hurry)
            self.later.when_done(self._done, self._start)
            self._start(result, self.later)

    def _start(self, work: Work, later: DeferredResponse) -> None:
        self.task = asyncio.ensure_future(work.run)
        self.task.add_done_callback(lambda task: later.finish(None if task.exception() else task.result()))

    def _done(self, later: DeferredResponse) -> None:
        self.answers.put_nowait(later.answer)


each_way = pytest.mark.parametrize("steps", [0, 2], ids=["at once", "in steps"])


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


async def waiting(log: Log, max_wait_ms: int = LONG_MS) -> Waiting:
    """Start a poll that finds too little data."""
    polled = Waiting(poll(log, max_wait_ms))
    await until(lambda: bool(log.waiting))
    return polled


@pytest.mark.parametrize(("messages", "max_wait_ms"), [(2, LONG_MS), (1, 0), (0, -1)])
def test_a_poll_with_enough_data_or_without_wait_is_answered_at_once(messages: int, max_wait_ms: int) -> None:
    log = Log()
    log.messages = messages
    assert poll(log, max_wait_ms) == b"%d" % messages


@each_way
def test_a_poll_waits_for_enough_data(steps: int) -> None:
    async def story() -> None:
        log = Log(steps)
        polled = await waiting(log)
        log.write()
        await until(lambda: log.reads == 2 and bool(log.waiting))
        assert polled.answers.empty()
        log.write()
        assert await polled.answers.get() == b"2"
        assert log.waiting == []

    run(story())


@each_way
@pytest.mark.parametrize("is_hurried", [True, False])
def test_an_expired_poll_is_answered_with_the_available_data(steps: int, is_hurried: bool) -> None:
    async def story() -> None:
        log = Log(steps)
        log.messages = 1
        polled = await waiting(log, LONG_MS if is_hurried else 50)
        if is_hurried:
            polled.later.hurry()
        assert await polled.answers.get() == b"1"
        assert log.waiting == []

    run(story())


def test_several_appends_in_one_step_cause_one_read() -> None:
    async def story() -> None:
        log = Log()
        polled = await waiting(log)
        log.write()
        log.write()
        polled.later.hurry()
        assert await polled.answers.get() == b"2"
        await asyncio.sleep(0)
        assert log.reads == 2

    run(story())


@each_way
def test_a_poll_without_memory_reads_again_after_a_delay(steps: int) -> None:
    async def story() -> None:
        log = Log(steps)
        log.messages, log.memory = 2, False
        polled = await waiting(log)
        log.memory = True
        assert await polled.answers.get() == b"2"

    run(story())


@each_way
def test_an_unexpected_failure_of_a_later_read_fails_the_request(steps: int) -> None:
    async def story() -> None:
        log = Log(steps)
        polled = await waiting(log)
        log.error = RuntimeError("a bug")
        log.write()
        assert await polled.answers.get() is None
        assert polled.task.exception() is log.error
        assert log.waiting == []

    run(story())


def test_a_waiting_poll_is_answered_when_reading_the_new_data_takes_several_steps() -> None:
    async def story() -> None:
        log = Log()
        polled = await waiting(log)
        log.steps, log.messages = 3, 1
        log.write()
        assert await polled.answers.get() == b"2"

    run(story())
