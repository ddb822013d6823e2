"""Runs workloads against brokers in alternating rounds; an interrupted run keeps its samples and failures."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.driver import Driver, Sample, batch_file
from bench.floor import floors
from bench.peers import Peer
from bench.processes import resident_mb
from bench.workloads import FLOORED_SIZE, GLIMPSE, QUICK, TINY, WARM, Scale, Workload, records_of
from confluent_kafka.cimpl import KafkaException

GUESS_S = 8.0
"""Assumed duration of a run of one workload, until some have been measured."""

FAILURES = (RuntimeError, OSError, subprocess.SubprocessError, KafkaException)


@dataclass(frozen=True, slots=True)
class Failure:
    """A workload that failed twice on one broker in one round."""

    workload: str
    peer: str
    reason: str


class Progress:
    """Reports the progress and the estimated remaining time on standard error."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0
        self._begun_s = time.monotonic()
        self.tell(f"{steps} runs of workloads, about {steps * GUESS_S / 60:.0f} minutes")

    def step(self, what: str) -> None:
        elapsed_s = time.monotonic() - self._begun_s
        each_s = elapsed_s / self._done if self._done > 5 else GUESS_S
        left_min = (self._steps - self._done) * each_s / 60
        self._done += 1
        self.tell(f"[{self._done} of {self._steps}, about {left_min:.0f} min left] {what}")

    def sample(self, sample: Sample) -> None:
        figures = ", ".join(f"{value:.4g} {name}" for name, value in sample.metrics.items())
        self.tell(f"{sample.workload:52} {sample.peer:9} {figures}")

    def tell(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Interrupts:
    """Turns signals into KeyboardInterrupt, and remembers them: clean-up code may swallow the exception."""

    def __init__(self) -> None:
        self._came = False

    def watch(self) -> None:
        for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(caught, self._interrupt)

    def check(self) -> None:
        if self._came:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: object) -> None:
        self._came = True
        raise KeyboardInterrupt


class Rounds:
    """Runs all rounds. Samples and failures accumulate here, so an interrupted run still has results."""

    def __init__(
        self, peers: Sequence[Peer], rounds: int, scale: Scale, directory: Path, interrupts: "Interrupts"
    ) -> None:
        self.samples: list[Sample] = []
        self.failures: list[Failure] = []
        self._peers = peers
        self._rounds = rounds
        self._interrupts = interrupts
        self._scale = scale
        bare = floors(directory, FLOORED_SIZE, records_of(FLOORED_SIZE), settles=scale.settles)
        self._floors = [driver.peer for driver in bare]
        self._drivers: dict[str, Driver] = {driver.peer.name: driver for driver in bare}

    def run(self, workloads: Sequence[Workload], *, starts: bool, memory: bool) -> None:
        """Runs everything, ordered so that each broker runs as long as possible with the same settings.

        Raises KeyboardInterrupt after a signal, whatever the interrupted code made of it: `shutil.rmtree` raises
        OSError if its clean-up is interrupted.
        """
        try:
            self._run_all(workloads, starts=starts, memory=memory)
        except Exception:
            self._interrupts.check()
            raise

    def _run_all(self, workloads: Sequence[Workload], *, starts: bool, memory: bool) -> None:
        runs = self._rounds * starts + memory
        runs += sum(min(self._rounds, workload.rounds_max) + workload.warms_up for workload in workloads)
        bare = sum(self._rounds * len(self._floors) for workload in workloads if workload.has_floor)
        self._progress = Progress(runs * len(self._peers) + bare)
        if starts:
            for number in range(self._rounds):
                for peer in self._order(number):
                    work = partial(_start, number=number, idle_s=self._scale.idle_s)
                    self._attempt("start", peer, work, flush=None)
        for flush in (False, True):
            chosen = [workload for workload in workloads if workload.flush is flush]
            if chosen or (memory and not flush):
                self._run(chosen, flush=flush, memory=memory and not flush)

    def _run(self, workloads: Sequence[Workload], *, flush: bool, memory: bool) -> None:
        with ExitStack() as stack:
            for peer in self._peers:
                stack.callback(peer.stop)
                self._start(peer, flush=flush)
            self._warm_up(workloads, flush=flush)
            for number in range(self._rounds):
                for workload in workloads:
                    if number < workload.rounds_max:
                        self._round(number, workload)
            for peer in self._peers if memory else ():
                self._attempt("memory", peer, lambda driver: [_memory_after_load(driver, self._scale)], flush=flush)

    def _round(self, number: int, workload: Workload) -> None:
        def run(driver: Driver) -> Iterable[Sample]:
            return [replace(sample, round=number) for sample in workload.run(driver, self._scale)]

        for peer in self._order(number):
            self._attempt(workload.name, peer, run, flush=workload.flush)
        for peer in self._floors if workload.has_floor else ():
            self._attempt(workload.name, peer, run, flush=None)

    def _warm_up(self, workloads: Sequence[Workload], *, flush: bool) -> None:
        """Runs each workload once on each broker, to bring it to its usual speed; a JVM above all needs that."""
        scale = {TINY: TINY, QUICK: GLIMPSE}.get(self._scale, WARM)
        kept = len(self.samples)
        for peer in self._peers:
            for workload in workloads:
                if not workload.warms_up:
                    continue
                what = f"{workload.name}, to warm up"
                self._attempt(what, peer, partial(workload.run, scale=scale), flush=flush)
        del self.samples[kept:]

    def _attempt(
        self, what: str, peer: Peer, work: Callable[[Driver], Iterable[Sample]], *, flush: bool | None
    ) -> None:
        """Runs the work, and retries it once on a running broker.

        `flush` is how to restart the broker; None: do not restart.
        """
        self._progress.step(f"{what}, {peer.name}")
        for is_last in (False, True):
            self._interrupts.check()
            try:
                samples = list(work(self._driver(peer)))
            except FAILURES as error:
                self._progress.tell(f"{what} failed on {peer.name}: {error}")
                if flush is None:
                    peer.stop()
                elif not peer.is_running:
                    self._start(peer, flush=flush)
                if is_last:
                    self.failures.append(Failure(what, peer.name, str(error).partition("\n")[0]))
            else:
                self.samples += samples  # Before they are reported: the report may make a user interrupt the run.
                for sample in samples:
                    self._progress.sample(sample)
                return

    def _start(self, peer: Peer, *, flush: bool) -> None:
        peer.start(flush_always=flush)
        self._drivers.pop(peer.name, None)

    def _driver(self, peer: Peer) -> Driver:
        if peer.name not in self._drivers:
            self._drivers[peer.name] = Driver(peer, settles=self._scale.settles)
        return self._drivers[peer.name]

    def _order(self, number: int) -> Sequence[Peer]:
        return self._peers if number % 2 == 0 else self._peers[::-1]


def _start(driver: Driver, *, number: int, idle_s: float) -> list[Sample]:
    """Measures the time from process start to the first acknowledged message, and the memory of the idle broker."""
    peer = driver.peer
    ready_s = peer.start()
    try:
        acknowledged_s = Driver(peer).first_acknowledgement() - peer.begun_s
        time.sleep(idle_s)
        figures = {"s to ready": ready_s, "s to first acknowledgement": acknowledged_s}
        return [
            Sample("start", peer.name, figures, round=number),
            Sample("idle memory", peer.name, {"MB": resident_mb(peer.pid)}, round=number),
        ]
    finally:
        peer.stop()


def _memory_after_load(driver: Driver, scale: Scale) -> Sample:
    """Measures resident memory after many more gigabytes than all earlier workloads."""
    batch = batch_file(8_000, 100)
    with driver.topic(16) as topic:
        requests = scale.memory_bytes // batch.stat().st_size
        options = {"partitions": 16, "batch": batch, "records": 8_000, "requests": requests}
        driver.raw("produce", [topic], settled=False, **options)
        name = f"memory after {scale.memory_bytes / 1e9:g} GB"
        return Sample(name, driver.peer.name, {"MB": resident_mb(driver.peer.pid)})
