"""The simulated loop runs asyncio programs in asyncio's order, in no time, and says when they cannot go on."""

import asyncio
from collections.abc import Iterator
from contextvars import copy_context

import pytest

from millstream.testing.simulated.loop import SimulatedLoop, SimulationStuckError
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    yield loop
    loop.end()


def test_sleeping_moves_simulated_time_and_no_other(loop: SimulatedLoop) -> None:
    async def sleep_a_day() -> float:
        before = loop.time()
        await asyncio.sleep(86_400)
        return loop.time() - before

    assert loop.run_until_complete(sleep_a_day()) == 86_400


def test_callbacks_run_first_in_first_out_and_timers_by_time(loop: SimulatedLoop) -> None:
    seen: list[str] = []

    async def main() -> None:
        loop.call_later(0.2, seen.append, "later")
        loop.call_later(0.1, seen.append, "sooner")
        loop.call_later(0.1, seen.append, "sooner, second")
        loop.call_soon(seen.append, "now")
        loop.call_soon(seen.append, "now, second")
        cancelled = loop.call_later(0.15, seen.append, "never")
        cancelled.cancel()
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert seen == ["now", "now, second", "sooner", "sooner, second", "later"]


def test_the_usual_asyncio_tools_work(loop: SimulatedLoop) -> None:
    async def main() -> str:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        lock = asyncio.Lock()
        done = asyncio.Event()

        async def produce() -> None:
            for number in range(5):
                async with lock:
                    await queue.put(number)
            done.set()

        async def consume() -> list[int]:
            return [await queue.get() for _ in range(5)]

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            consumed = group.create_task(consume())
        await done.wait()
        assert consumed.result() == [0, 1, 2, 3, 4]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 5)
        return "done"

    assert loop.run_until_complete(main()) == "done"
    assert loop.failures == []


def test_nothing_left_to_do_is_a_deadlock_that_names_who_waits(loop: SimulatedLoop) -> None:
    async def main() -> None:
        await loop.create_task(asyncio.Event().wait(), name="the one that waits")

    with pytest.raises(SimulationStuckError, match=r"deadlock.*the one that waits"):
        loop.run_until_complete(main())


def test_a_program_without_end_is_stopped() -> None:
    loop = SimulatedLoop(steps_max=1000)

    async def spin() -> None:
        for _ in range(2000):
            await asyncio.sleep(0)

    with pytest.raises(SimulationStuckError, match="no end after"):
        loop.run_until_complete(spin())
    loop.end()


def test_exceptions_that_nobody_takes_are_failures(loop: SimulatedLoop) -> None:
    def fail() -> None:
        raise ValueError("from a callback")

    async def fail_in_task() -> None:
        raise ValueError("from a task")

    async def main() -> None:
        loop.call_soon(fail)
        task = loop.create_task(fail_in_task())
        await asyncio.sleep(1)
        assert task.done()

    loop.run_until_complete(main())
    failures = loop.settle_failures()
    assert len(failures) == 2
    assert "ValueError('from a callback')" in failures[0]
    assert "ValueError('from a task')" in failures[1]
    assert "fail_in_task" in failures[1]


def test_threads_are_refused(loop: SimulatedLoop) -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="must not start threads"):
        loop.run_until_complete(main())


def test_nothing_of_a_dead_owner_runs_any_more(loop: SimulatedLoop) -> None:
    seen: list[str] = []
    owner = SimulatedOwner("doomed")

    async def live_on() -> None:
        try:
            seen.append("began")
            loop.call_later(5, seen.append, "a timer of the dead")
            loop.create_task(asyncio.sleep(5))
            await asyncio.sleep(5)
        finally:
            seen.append("cleanup of the dead")

    async def main() -> None:
        context = copy_context()
        context.run(OWNER.set, owner)
        loop.create_task(live_on(), context=context)
        await asyncio.sleep(1)
        owner.alive = False
        await asyncio.sleep(10)
        assert seen == ["began"]

    loop.run_until_complete(main())
    assert loop.failures == []


def test_waiting_for_a_dead_owner_is_a_deadlock(loop: SimulatedLoop) -> None:
    owner = SimulatedOwner("doomed")
    future: asyncio.Future[None] = loop.create_future()

    async def answer() -> None:
        await asyncio.sleep(2)
        future.set_result(None)

    async def main() -> None:
        context = copy_context()
        context.run(OWNER.set, owner)
        loop.create_task(answer(), context=context)
        await asyncio.sleep(1)
        owner.alive = False
        await future

    with pytest.raises(SimulationStuckError, match="deadlock"):
        loop.run_until_complete(main())
