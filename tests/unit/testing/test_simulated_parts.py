"""Simulated clocks, chance, workers and the trace."""

import asyncio
from collections.abc import Iterator
from contextvars import copy_context
from functools import partial
from random import Random

import pytest

from millstream.testing.simulated.clock import ManualClock, SimulatedClock
from millstream.testing.simulated.entropy import SimulatedEntropy, branch
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner
from millstream.testing.simulated.workers import SimulatedWorkers, Slowness
from millstream.testing.simulation.trace import Trace


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    yield loop
    loop.end()


def test_the_simulated_clock_follows_the_loop_and_only_its_wall_time_jumps(loop: SimulatedLoop) -> None:
    clock = SimulatedClock(loop)
    wall_ms, monotonic_s = clock.wall_ms(), clock.monotonic_s()
    loop.run_until_complete(asyncio.sleep(2))
    assert clock.wall_ms() == wall_ms + 2000
    clock.jump_ms(-3_600_000)
    assert clock.wall_ms() == wall_ms + 2000 - 3_600_000
    assert clock.monotonic_s() == monotonic_s + 2


def test_the_manual_clock_stands_until_it_is_moved() -> None:
    clock = ManualClock(wall_ms=5_000, monotonic_s=1.0)
    clock.advance_ms(250)
    assert (clock.wall_ms(), clock.monotonic_s()) == (5_250, 1.25)
    clock.jump_ms(-1_000)
    assert (clock.wall_ms(), clock.monotonic_s()) == (4_250, 1.25)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance_ms(-1)


def test_chance_follows_from_the_seed_and_branches_do_not_disturb_each_other() -> None:
    assert SimulatedEntropy(Random(7)).token(16) == SimulatedEntropy(Random(7)).token(16)
    assert SimulatedEntropy(Random(7)).token(16) != SimulatedEntropy(Random(8)).token(16)
    first, second = Random(7), Random(7)
    branch(first, "disk").random()
    branch(second, "disk").randbytes(100)
    assert branch(first, "network").random() == branch(second, "network").random()


def test_work_gives_its_result_or_its_exception_after_some_time(loop: SimulatedLoop) -> None:
    workers = SimulatedWorkers(loop, Random(1), count=2)

    def fail() -> None:
        raise OSError(5, "no such luck")

    async def main() -> None:
        before = loop.time()
        assert await workers.run(lambda: 6 * 7) == 42
        assert loop.time() > before
        with pytest.raises(OSError, match="no such luck"):
            await workers.run(fail)
        assert await asyncio.gather(*(workers.run(partial(abs, -n)) for n in range(10))) == list(range(10))

    loop.run_until_complete(main())


def test_no_more_work_is_under_way_than_there_are_workers(loop: SimulatedLoop) -> None:
    workers = SimulatedWorkers(loop, Random(1), count=1, slowness=Slowness(usual_s=1.0, rare_chance=0))
    order: list[int] = []

    async def main() -> None:
        await asyncio.gather(*(workers.run(partial(order.append, n)) for n in range(20)))

    loop.run_until_complete(main())
    assert order == list(range(20))


def test_work_cancelled_before_it_began_does_not_run(loop: SimulatedLoop) -> None:
    workers = SimulatedWorkers(loop, Random(1), count=1)
    ran: list[str] = []

    async def main() -> None:
        first = workers.run(lambda: ran.append("first"))
        second = workers.run(lambda: ran.append("second"))
        first.cancel()
        second.cancel()
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert ran == ["first"]


def test_closing_workers_lets_all_work_take_effect_first(loop: SimulatedLoop) -> None:
    workers = SimulatedWorkers(loop, Random(1), count=1)

    async def main() -> None:
        ran: list[int] = []
        futures = [workers.run(partial(ran.append, n)) for n in range(5)]
        await asyncio.sleep(0)
        workers.close()
        assert ran == [0, 1, 2, 3, 4]
        await asyncio.gather(*futures)
        with pytest.raises(RuntimeError, match="closed"):
            workers.run(lambda: None)

    loop.run_until_complete(main())


@pytest.mark.parametrize("crash_after_s", [0.0, 0.5, 1.5, 3.0])
def test_a_crash_falls_between_the_moments_of_a_job(loop: SimulatedLoop, crash_after_s: float) -> None:
    class OneSecond(Slowness):
        def draw(self, random: Random) -> float:
            return 1.0

    owner = SimulatedOwner("doomed")
    seen: list[str] = []

    async def work() -> None:
        await SimulatedWorkers(loop, Random(1), slowness=OneSecond()).run(lambda: seen.append("effect"))
        seen.append("result")

    async def main() -> None:
        context = copy_context()
        context.run(OWNER.set, owner)
        loop.create_task(work(), context=context)
        await asyncio.sleep(crash_after_s)
        owner.alive = False
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    expected = {0.0: [], 0.5: [], 1.5: ["effect", "result"], 3.0: ["effect", "result"]}
    assert seen == expected[crash_after_s]


def test_the_digest_depends_on_time_values_and_order() -> None:
    def digest(*events: tuple[float, str, int]) -> str:
        trace = Trace()
        for time_s, event, value in events:
            trace.note(time_s, event, value)
        return trace.digest()

    base = digest((1.0, "a", 1), (2.0, "b", 2))
    assert base == digest((1.0, "a", 1), (2.0, "b", 2))
    assert base != digest((1.5, "a", 1), (2.0, "b", 2))
    assert base != digest((1.0, "a", 3), (2.0, "b", 2))
    assert base != digest((2.0, "b", 2), (1.0, "a", 1))
