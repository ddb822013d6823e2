"""From a seed to a verdict, in one thread: the same seed gives the same run, event by event."""

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from millstream.model.errors import MillstreamError
from millstream.process.logs import fields_of
from millstream.testing.simulated.loop import SimulatedLoop, SimulationStuckError, described
from millstream.testing.simulation.checker import Promises, check
from millstream.testing.simulation.plan import FaultKind, Flush, Plan, draw_plan
from millstream.testing.simulation.trace import Trace
from millstream.testing.simulation.world import UnsettledError, World

STEPS_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class SeedVerdict:
    """What became of one seed; `problems` is empty for a good run."""

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
    """Play a seed to its end and judge it. `listener` is told every event as it happens."""
    return run_plan(draw_plan(seed, flush=flush), listener=listener)


def run_plan(plan: Plan, *, listener: Callable[[str], None] | None = None) -> SeedVerdict:
    """Play a plan to its end and judge it."""
    trace = Trace(listener=listener)
    loop = SimulatedLoop(steps_max=STEPS_MAX)
    began_s = loop.time()
    with _collecting_at_the_end(), _logs_as_events(loop, trace):
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
    """What a broker with this plan's flush policy has to keep under this plan's faults."""
    durable = plan.flush == "always"
    flushes_fail = any(fault.kind is FaultKind.FLUSH_ERROR for fault in plan.faults)
    return Promises(
        survives_power_loss=durable,
        survives_flush_errors=durable or not flushes_fail,
        keeps_everything=all(topic.retention_bytes < 0 for topic in plan.topics),
    )


@contextmanager
def _collecting_at_the_end() -> Iterator[None]:
    """Keep the garbage collector, whose moments depend on all else in the process, out of the run."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _EventHandler(logging.Handler):
    def __init__(self, loop: SimulatedLoop, trace: Trace) -> None:
        super().__init__()
        self._loop = loop
        self._trace = trace
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:  # Another program's in this process: the run has one thread.
            return
        fields = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        self._trace.note(self._loop.time(), "log", record.levelname, record.getMessage(), fields)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, (OSError, MillstreamError)):
            self._loop.failures.append(f"logged: {record.getMessage()}: {described(error)}")


@contextmanager
def _logs_as_events(loop: SimulatedLoop, trace: Trace) -> Iterator[None]:
    """The broker's log lines become events of the run; one that tells of an unexpected exception fails it."""
    logger = logging.getLogger("millstream")
    handler = _EventHandler(loop, trace)
    before = (logger.propagate, logger.level)
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)  # Not by the attribute: loggers remember what their level let through.
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])
