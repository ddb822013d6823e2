"""Runs one seed in one thread and judges the run. The same seed gives the same run, event by event."""

from collections.abc import Callable
from dataclasses import dataclass

from millstream.model.errors import MillstreamError
from millstream.testing.simulated.loop import SimulatedLoop, SimulationStuckError
from millstream.testing.simulated.trace import Trace
from millstream.testing.simulation.checker import Promises, check
from millstream.testing.simulation.faults import FaultKind
from millstream.testing.simulation.plan import Flush, Plan, draw_plan
from millstream.testing.simulation.repeatable import repeatable_run
from millstream.testing.simulation.settling import UnsettledError
from millstream.testing.simulation.world import World

STEPS_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class SeedVerdict:
    """The result of one seed. `problems` is empty if the run passed."""

    seed: int
    plan: Plan
    digest: str
    problems: tuple[str, ...]
    steps: int
    simulated_s: float
    writes: int
    crashes: int
    last_events: tuple[str, ...]


def run_seed(
    seed: int,
    *,
    flush: Flush | None = None,
    listener: Callable[[str], None] | None = None,
) -> SeedVerdict:
    """Run a seed to its end and judge it. `listener` receives every event as it happens."""
    return run_plan(draw_plan(seed, flush=flush), listener=listener)


def run_plan(plan: Plan, *, listener: Callable[[str], None] | None = None) -> SeedVerdict:
    """Run a plan to its end and judge it."""
    trace = Trace(listener=listener)
    loop = SimulatedLoop(steps_max=STEPS_MAX)
    began_s = loop.time()
    with repeatable_run(loop, trace):
        world = World(plan, loop, trace)
        problems = _play(world, loop)
        trace.note(loop.time(), "end", loop.steps)
        verdict = SeedVerdict(
            seed=plan.seed,
            plan=plan,
            digest=trace.digest(),
            problems=(*problems, *loop.settle_failures()),
            steps=loop.steps,
            simulated_s=loop.time() - began_s,
            writes=len(world.history.writes),
            crashes=len(world.history.crashes),
            last_events=tuple(trace.last),
        )
        loop.end()
    return verdict


def _play(world: World, loop: SimulatedLoop) -> list[str]:
    try:
        outcome = loop.run_until_complete(world.run())
    except (SimulationStuckError, UnsettledError, MillstreamError) as error:
        return [f"{type(error).__name__}: {error}"]
    violations = check(outcome.history, outcome.final, promised(world.plan))
    return [*outcome.problems, *map(str, violations)]


def promised(plan: Plan) -> Promises:
    """The guarantees of a broker with this plan's flush policy under this plan's faults."""
    durable = plan.flush == "always"
    flushes_fail = any(fault.kind is FaultKind.FLUSH_ERROR for fault in plan.faults)
    return Promises(
        survives_power_loss=durable,
        survives_flush_errors=durable or not flushes_fail,
        keeps_everything=all(topic.retention_bytes < 0 for topic in plan.topics),
    )
