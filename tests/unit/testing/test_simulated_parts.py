"""Tests simulated clocks, entropy, workers and the trace."""

import asyncio
from collections.abc import Iterator
from contextvars import copy_context
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.testing.simulated.clock import ManualClock, SimulatedClock
from millstream.testing.simulated.entropy import SimulatedEntropy, branch
from millstream.testing.simulated.local_time import LocalTime
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner
from millstream.testing.simulated.trace import Trace
from millstream.testing.simulated.workers import SimulatedWorkers, Slowness


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    yield loop
    loop.end()


def test_the_simulated_clock_follows_the_loop_and_only_the_wall_clock_jumps(loop: SimulatedLoop) -> None:
    clock = SimulatedClock(loop)
    wall_ms, monotonic_s = clock.wall_ms(), clock.monotonic_s()
    loop.run_until_complete(asyncio.sleep(2))
    assert clock.wall_ms() == wall_ms + 2000
    clock.jump_ms(-3_600_000)
    assert clock.wall_ms() == wall_ms + 2000 - 3_600_000
    assert clock.monotonic_s() == monotonic_s + 2


@pytest.mark.parametrize("rate", [0.9, 1.1])
def test_both_clocks_of_a_machine_run_at_its_rate(loop: SimulatedLoop, rate: float) -> None:
    clock = SimulatedClock(loop, rate=rate, wall_start_ms=5_000, monotonic_start_s=70.0)
    assert (clock.wall_ms(), clock.monotonic_s()) == (5_000, 70.0)
    loop.run_until_complete(asyncio.sleep(100))
    assert clock.monotonic_s() == pytest.approx(70 + 100 * rate)
    assert clock.wall_ms() == pytest.approx(5_000 + 100_000 * rate, abs=1)
    clock.jump_ms(-1_000_000)
    assert clock.wall_ms() == pytest.approx(5_000 + 100_000 * rate - 1_000_000, abs=1)
    assert clock.monotonic_s() == pytest.approx(70 + 100 * rate)


@given(
    rate=st.floats(0.9, 1.1),
    local_start_s=st.floats(0, 1e9),
    true_start_s=st.floats(0, 1e6),
    delay_s=st.floats(0, 1e6),
)
def test_a_local_deadline_converts_to_the_first_simulated_time(
    rate: float, local_start_s: float, true_start_s: float, delay_s: float
) -> None:
    time = LocalTime(rate=rate, local_start_s=local_start_s, true_start_s=true_start_s)
    deadline_s = local_start_s + delay_s
    due_s = time.true_s(deadline_s)
    assert time.local_s(due_s) >= deadline_s
    assert time.local_s(due_s - 1e-5) < deadline_s


def test_the_manual_clock_changes_only_when_it_is_moved() -> None:
    clock = ManualClock(wall_ms=5_000, monotonic_s=1.0)
    clock.advance_ms(250)
    assert (clock.wall_ms(), clock.monotonic_s()) == (5_250, 1.25)
    clock.jump_ms(-1_000)
    assert (clock.wall_ms(), clock.monotonic_s()) == (4_250, 1.25)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance_ms(-1)


def test_entropy_follows_from_the_seed_and_branches_are_independent() -> None:
    assert SimulatedEntropy(Random(7)).token(16) == SimulatedEntropy(Random(7)).token(16)
    assert SimulatedEntropy(Random(7)).token(16) != SimulatedEntropy(Random(8)).token(16)
    first, second = Random(7), Random(7)
    branch(first, "disk").random()
    branch(second, "disk").randbytes(100)
    assert branch(first, "network").random() == branch(second, "network").random()


def test_simulated_work_returns_its_result_or_exception_later(loop: SimulatedLoop) -> None:
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


def test_a_single_worker_runs_jobs_one_at_a_time_in_order(loop: SimulatedLoop) -> None:
    workers = SimulatedWorkers(loop, Random(1), count=1, slowness=Slowness(usual_s=1.0, rare_chance=0))
    order: list[int] = []

    async def main() -> None:
        await asyncio.gather(*(workers.run(partial(order.append, n)) for n in range(20)))

    loop.run_until_complete(main())
    assert order == list(range(20))


def test_work_cancelled_before_its_start_does_not_run(loop: SimulatedLoop) -> None:
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


def test_closing_workers_runs_all_submitted_work(loop: SimulatedLoop) -> None:
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
def test_a_crash_prevents_the_later_steps_of_a_job(loop: SimulatedLoop, crash_after_s: float) -> None:
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
        owner.die()
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    expected = {0.0: [], 0.5: [], 1.5: ["effect", "result"], 3.0: ["effect", "result"]}
    assert seen == expected[crash_after_s]


def test_the_trace_digest_depends_on_time_values_and_order() -> None:
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
