"""Checks that the simulated loop runs programs in asyncio's order, without waiting, and reports deadlocks."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest

from millstream.testing.simulated.local_time import LocalTime
from millstream.testing.simulated.loop import SimulatedLoop, SimulationStuckError
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    yield loop
    loop.end()


def test_sleeping_advances_only_simulated_time(loop: SimulatedLoop) -> None:
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


def test_asyncio_queues_groups_and_timeouts_work_in_the_simulated_loop(loop: SimulatedLoop) -> None:
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


def test_a_deadlock_is_reported_with_the_waiting_tasks(loop: SimulatedLoop) -> None:
    async def main() -> None:
        await loop.create_task(asyncio.Event().wait(), name="the one that waits")

    with pytest.raises(SimulationStuckError, match=r"deadlock.*the one that waits"):
        loop.run_until_complete(main())


def test_a_program_over_the_step_limit_is_stopped() -> None:
    loop = SimulatedLoop(steps_max=1000)

    async def spin() -> None:
        for _ in range(2000):
            await asyncio.sleep(0)

    with pytest.raises(SimulationStuckError, match="no end after"):
        loop.run_until_complete(spin())
    loop.end()


def test_unhandled_exceptions_are_failures_of_the_run(loop: SimulatedLoop) -> None:
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


def test_the_simulated_loop_refuses_threads(loop: SimulatedLoop) -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="must not start threads"):
        loop.run_until_complete(main())


def test_tasks_timers_and_cleanup_of_a_dead_owner_do_not_run(loop: SimulatedLoop) -> None:
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
        owner.die()
        await asyncio.sleep(10)
        assert seen == ["began"]

    loop.run_until_complete(main())
    assert loop.failures == []


def test_waiting_for_a_result_of_a_dead_owner_is_reported_as_a_deadlock(loop: SimulatedLoop) -> None:
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
        owner.die()
        await future

    with pytest.raises(SimulationStuckError, match="deadlock"):
        loop.run_until_complete(main())


def start_process(
    loop: SimulatedLoop, owner: SimulatedOwner, main: Callable[[], Coroutine[Any, Any, object]]
) -> asyncio.Task[object]:
    context = copy_context()
    context.run(OWNER.set, owner)
    return loop.create_task(main(), context=context)


async def tick(seen: list[float]) -> None:
    """Record the time after every second of the caller's clock."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(1)
        seen.append(loop.time())


def test_a_paused_process_stops_while_others_continue(loop: SimulatedLoop) -> None:
    paused, other = SimulatedOwner("paused"), SimulatedOwner("other")
    ticks: list[float] = []
    others: list[float] = []

    async def main() -> None:
        start_process(loop, paused, lambda: tick(ticks))
        start_process(loop, other, lambda: tick(others))
        await asyncio.sleep(2.5)
        loop.pause(paused)
        assert repr(paused) == "<paused, paused>"
        await asyncio.sleep(10)
        assert (ticks, len(others)) == ([1_001, 1_002], 12)
        loop.resume(paused)
        await asyncio.sleep(2)
        assert ticks == [1_001, 1_002, 1_012.5, 1_013.5], "its timer ran late, and the next one a second after it"

    loop.run_until_complete(main())
    assert loop.failures == []


def test_held_callbacks_run_in_order_with_timers_last(loop: SimulatedLoop) -> None:
    owner = SimulatedOwner("paused")
    context = copy_context()
    context.run(OWNER.set, owner)
    seen: list[str] = []

    async def main() -> None:
        loop.call_later(3, seen.append, "timer of second 3", context=context)
        loop.call_later(1, seen.append, "timer of second 1", context=context)
        loop.call_later(9, seen.append, "timer of second 9", context=context)
        cancelled = loop.call_later(2, seen.append, "cancelled", context=context)
        loop.call_soon(seen.append, "ready at the pause", context=context)
        loop.pause(owner)
        await asyncio.sleep(4)
        loop.call_soon(seen.append, "received", context=context)
        await asyncio.sleep(1)
        cancelled.cancel()
        assert seen == []
        loop.resume(owner)
        assert seen == [], "nothing runs within the call"
        await asyncio.sleep(0)
        assert seen == ["ready at the pause", "received", "timer of second 1", "timer of second 3"]
        await asyncio.sleep(5)
        assert seen[4:] == ["timer of second 9"]

    loop.run_until_complete(main())


def test_callbacks_held_by_a_pause_run_before_those_scheduled_at_resume(loop: SimulatedLoop) -> None:
    owner = SimulatedOwner("paused")
    context = copy_context()
    context.run(OWNER.set, owner)
    seen: list[str] = []

    async def main() -> None:
        loop.pause(owner)
        loop.call_soon(seen.append, "first", context=context)
        await asyncio.sleep(1)
        loop.call_soon(loop.resume, owner)
        loop.call_soon(seen.append, "second", context=context)
        await asyncio.sleep(1)
        assert seen == ["first", "second"]

    loop.run_until_complete(main())


def test_a_process_killed_while_paused_never_runs_again(loop: SimulatedLoop) -> None:
    owner = SimulatedOwner("paused")
    ticks: list[float] = []

    async def main() -> None:
        start_process(loop, owner, lambda: tick(ticks))
        await asyncio.sleep(1.5)
        loop.pause(owner)
        await asyncio.sleep(5)
        owner.die()
        with pytest.raises(AssertionError, match="dead"):
            loop.resume(owner)
        await asyncio.sleep(5)
        assert len(ticks) == 1

    loop.run_until_complete(main())
    assert loop.failures == []


def test_a_process_may_be_paused_within_a_loop_iteration(loop: SimulatedLoop) -> None:
    owner = SimulatedOwner("paused")
    context = copy_context()
    context.run(OWNER.set, owner)
    seen: list[int] = []

    async def main() -> None:
        loop.call_soon(seen.append, 1, context=context)
        loop.call_soon(loop.pause, owner)
        loop.call_soon(seen.append, 2, context=context)
        await asyncio.sleep(1)
        assert seen == [1]
        loop.resume(owner)
        await asyncio.sleep(0)
        assert seen == [1, 2]

    loop.run_until_complete(main())


@pytest.mark.parametrize("rate", [0.9, 1.0, 1.1])
def test_timers_of_a_process_follow_the_clock_of_its_machine(loop: SimulatedLoop, rate: float) -> None:
    owner = SimulatedOwner("process", LocalTime(rate=rate, local_start_s=50.0, true_start_s=loop.time()))
    slept: list[float] = []

    async def sleep() -> None:
        began_s = asyncio.get_running_loop().time()
        assert began_s == 50
        await asyncio.sleep(99)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(11):
                await asyncio.Event().wait()
        slept.append(asyncio.get_running_loop().time() - began_s)

    async def main() -> None:
        began_s = loop.time()
        await start_process(loop, owner, sleep)
        assert slept[0] == pytest.approx(110)
        assert loop.time() - began_s == pytest.approx(110 / rate)

    loop.run_until_complete(main())


def test_the_faster_clock_reaches_the_same_deadline_first(loop: SimulatedLoop) -> None:
    order: list[str] = []

    async def wait(name: str) -> None:
        await asyncio.sleep(10)
        order.append(name)

    async def main() -> None:
        now_s = loop.time()
        for name, rate in (("slow", 0.9), ("true", 1.0), ("fast", 1.1)):
            owner = SimulatedOwner(name, LocalTime(rate=rate, local_start_s=now_s, true_start_s=now_s))
            start_process(loop, owner, partial(wait, name))
        await asyncio.sleep(20)

    loop.run_until_complete(main())
    assert order == ["fast", "true", "slow"]
