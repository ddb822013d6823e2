"""Measures how long a broker with much data takes to restart, by how its process ended and what was in the page cache.

A restart is complete when one message on every partition is acknowledged. Before each one, the log was written in small
batches until the process ended. The first kill follows right after all data was written, when most of it is unflushed
in the page cache. Before "cold" starts, the data is flushed to disk and dropped from the page cache; the program's own
files stay there.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.driver import Driver, batch_file
from bench.growing import RECORDS, SIZE
from bench.peers import Millstream, Peer

STORED_RECORDS = 500
CLEAN, CLEAN_COLD = "stopped in order", "stopped in order, cold"
KILLED, KILLED_COLD = "killed", "killed, cold"
KILLED_AFTER_ALL = "killed right after all of it was written"
LIMITS_S = {CLEAN: 1.0, CLEAN_COLD: 1.0, KILLED: 3.0, KILLED_COLD: 3.0, KILLED_AFTER_ALL: 3.0}


@dataclass(frozen=True, slots=True)
class RestartScale:
    """Amounts of data for restarts."""

    data_bytes: int
    unsettled_bytes: int
    """Bytes written just before the process ends."""


FULL = RestartScale(10_000_000_000, 100_000_000)
QUICK = RestartScale(1_000_000_000, 20_000_000)
TINY = RestartScale(20_000_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class RestartCase:
    """One broker configuration to restart."""

    name: str
    partitions: int
    flush_always: bool


CASES = (
    RestartCase("restart on 1 partition", 1, flush_always=False),
    RestartCase("restart on 400 partitions", 400, flush_always=False),
    RestartCase("restart on 16 partitions with flush always", 16, flush_always=True),
)


@dataclass(frozen=True, slots=True)
class Restart:
    """The measurement of one restart."""

    case: str
    how: str
    data_bytes: int
    ready_s: float
    acknowledged_s: float
    """Seconds until a message on every partition was acknowledged."""


def measure_restarts(case: RestartCase, scale: RestartScale, rounds: int, directory: Path) -> list[Restart]:
    """Restarts a broker without data and then with data, in every way, and returns the measurements."""
    with _started(case, directory) as driver, driver.topic(case.partitions) as topic:
        run = _Run(case, driver, topic)
        for _ in range(rounds):
            run.restart(CLEAN)
            run.restart(KILLED)
        run.write(scale.data_bytes, STORED_RECORDS)
        run.data_bytes = scale.data_bytes
        run.restart(KILLED_AFTER_ALL)
        for _ in range(rounds):
            for how in (CLEAN, CLEAN_COLD, KILLED, KILLED_COLD):
                run.write(scale.unsettled_bytes, RECORDS)
                run.restart(how)
        return run.found


@contextmanager
def _started(case: RestartCase, directory: Path) -> Iterator[Driver]:
    peer = Millstream(directory / "restart")
    try:
        peer.start(flush_always=case.flush_always)
        yield Driver(peer)
    finally:
        peer.stop()
        shutil.rmtree(peer.directory, ignore_errors=True)


class _Run:
    """Restarts of one broker while its data grows."""

    def __init__(self, case: RestartCase, driver: Driver, topic: str) -> None:
        self._case = case
        self._driver = driver
        self._topic = topic
        self.data_bytes = 0
        self.found: list[Restart] = []

    def write(self, size_bytes: int, records: int) -> None:
        batch = batch_file(records, SIZE)
        options = {"partitions": self._case.partitions, "batch": batch, "records": records}
        requests = size_bytes // batch.stat().st_size
        self._driver.raw("produce", [self._topic], settled=False, requests=requests, **options)

    def restart(self, how: str) -> None:
        peer, case = self._driver.peer, self._case
        if how not in (CLEAN, CLEAN_COLD):
            os.kill(peer.pid, signal.SIGKILL)
        peer.end()
        if how in (CLEAN_COLD, KILLED_COLD):
            drop_from_page_cache(peer)
        ready_s = peer.launch(flush_always=case.flush_always)
        spread = {"partitions": case.partitions, "spread": case.partitions, "requests": 1}
        self._driver.raw("produce", [self._topic], settled=False, batch=batch_file(1, SIZE), records=1, **spread)
        restart = Restart(case.name, how, self.data_bytes, ready_s, time.monotonic() - peer.begun_s)
        self.found.append(restart)
        print(
            f"{case.name:40} {self.data_bytes:>14,} {how:42} {restart.ready_s:.3f} s to the first answer, "
            f"{restart.acknowledged_s:.3f} s until all partitions acknowledged",
            file=sys.stderr,
            flush=True,
        )


def drop_from_page_cache(peer: Peer) -> None:
    """Flushes the data of a stopped broker and drops it from the page cache."""
    subprocess.run(["sync", "-f", str(peer.directory)], check=True)
    for path in peer.directory.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
