"""Runs a broker inside the test process: the real node on real sockets and files, in its own thread.

with EmbeddedBroker() as broker:
    ...                                   # clients of any kind connect to broker.bootstrap
    broker.clock.advance(timedelta(days=8))   # everything due within 8 days happens now
    broker.disk.is_full = True                # for other faults see DiskFaults and NetworkFaults
    broker.kill()                             # nothing is flushed, connections break
    broker.start()                            # the same port, the same data
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable
from inspect import CORO_CREATED, getcoroutinestate
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from millstream.catalog.sqlite import SqliteCatalog
from millstream.node.node import Node
from millstream.node.settings import BrokerSettings, load
from millstream.seams.entropy import SystemEntropy
from millstream.seams.local_disk import LocalDisk
from millstream.seams.workers import ThreadWorkers
from millstream.supervisor.serve import CATALOG_FILE
from millstream.testing.adjustable_clock import AdjustableClock, AdjustableLoop
from millstream.testing.faulty_disk import DiskFaults, FaultyDisk
from millstream.testing.faulty_network import FaultyNetwork, NetworkFaults

T = TypeVar("T")

START_TIMEOUT_S = 60.0
HOST = "127.0.0.1"
DEFAULTS: dict[str, object] = {
    "operator_port": "off",
    "group_initial_rebalance_delay_ms": 0,
    "consumer_assignment_interval_ms": 0,
    "offsets_partitions": 1,
}
"""Defaults for tests: no operator port, no delay for joining group members, one partition for group offsets."""


class EmbeddedBroker:
    """A broker that can be started, stopped, killed and restarted, with the same port and the same data.

    `settings` are the settings of `millstream serve`, with the same names and with values as text or numbers, for
    example `default_partitions=3` or `retention_ms="1h"`. Without `data_dir` the data is in a temporary directory,
    which `close` removes. Do not use one object from two threads at once. Clients may run anywhere.
    """

    def __init__(self, data_dir: Path | str | None = None, **settings: object) -> None:
        self._is_own_directory = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="millstream-") if data_dir is None else data_dir)
        self.port = 0
        self.clock = AdjustableClock()
        self.clock.when_moved = self._catch_up
        self.disk = DiskFaults()
        self.network = NetworkFaults()
        self._settings = DEFAULTS | settings
        self._process: _Process | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<EmbeddedBroker {self.bootstrap}{'' if self.is_running else ', not running'}>"

    @property
    def bootstrap(self) -> str:
        """The address that clients connect to."""
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> Self:
        """Start the broker, and return when clients can connect. Raise the error that prevents the start."""
        if self._process is not None:
            raise RuntimeError("the broker is running already")
        settings = {"data": str(self.data_dir), "host": HOST, "kafka_port": self.port} | self._settings
        process = _Process(load(settings, {}), self.clock, self.disk, self.network)
        self.port = process.start()
        self._process = process
        return self

    def stop(self) -> None:
        """Stop the broker as an operator does: answer pending requests, flush, and write checkpoints."""
        self._take().stop()

    def kill(self) -> None:
        """End the broker at once, as kill -9 does. Data that was not flushed is only in the kernel's memory."""
        self._take().kill()

    def restart(self) -> Self:
        """Stop the broker if it runs, and start it on the same port and data."""
        if self._process is not None:
            self.stop()
        return self.start()

    def pause(self) -> None:
        """Pause the broker, like a process that is stopped or swapped out. Connections stay open without responses.

        The clock may be moved meanwhile. Everything that is due by then happens after `resume`.
        """
        self._running().pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._running().resume()

    def upkeep(self) -> None:
        """Run the maintenance now that usually runs every few seconds: retention, snapshots and retries."""
        process = self._running()
        process.call(process.node.upkeep)

    def close(self) -> None:
        """Stop the broker if it runs, and remove the data if this object created the directory."""
        try:
            if self._process is not None:
                self.stop()
        finally:
            if self._is_own_directory:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def _catch_up(self) -> None:
        """Run everything that is due after the clock was moved, before the test continues."""
        if self._process is not None and not self._process.is_paused:
            self._process.look_again()
            self.upkeep()

    def _running(self) -> "_Process":
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process

    def _take(self) -> "_Process":
        process, self._process = self._running(), None
        return process


class _Process:
    """One run of the broker: its thread, its event loop and its open resources."""

    def __init__(
        self, settings: BrokerSettings, clock: AdjustableClock, disk: DiskFaults, network: NetworkFaults
    ) -> None:
        self._loop = AdjustableLoop(clock)
        self._workers = ThreadWorkers(2, "millstream-disk")
        self._flush_workers = ThreadWorkers(2, "millstream-flush")
        self._faults = network
        self._network = FaultyNetwork(network)
        self._disk = FaultyDisk(LocalDisk(), disk)
        entropy = SystemEntropy()
        self._catalog = SqliteCatalog(
            Path(settings.data[0], CATALOG_FILE), workers=self._workers, clock=clock, entropy=entropy
        )
        self.node = Node(
            settings,
            clock=clock,
            disk=self._disk,
            network=self._network,
            workers=self._workers,
            flush_workers=self._flush_workers,
            catalog=self._catalog,
            entropy=entropy,
        )
        self._thread = threading.Thread(target=self._run, name="millstream-broker", daemon=True)
        self._going_on = threading.Event()
        self._going_on.set()

    def start(self) -> int:
        """Start the node, and return the port it listens on."""
        self._thread.start()
        self._faults.attach(self._loop)
        try:
            self.call(self.node.start, START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        return self.node.kafka_port

    def stop(self) -> None:
        self.resume()
        try:
            self.call(self.node.stop)
        finally:
            self._end()

    def kill(self) -> None:
        self._disk.cut_off()
        self.resume()
        self.call(self._die)
        self._end()

    async def _die(self) -> None:
        self._loop.set_exception_handler(lambda loop, context: None)
        # A just accepted connection has no owner until its task has begun, and its socket would stay open.
        while _are_unbegun(asyncio.all_tasks()):  # noqa: ASYNC110  # no event signals that a task has begun
            await asyncio.sleep(0)
        self._network.stop_listening()
        this = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not this]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._faults.end_connections()
        await self._catalog.close()
        self._disk.release()

    @property
    def is_paused(self) -> bool:
        return not self._going_on.is_set()

    def pause(self) -> None:
        self._going_on.clear()
        self._loop.call_soon_threadsafe(self._going_on.wait)

    def resume(self) -> None:
        self._going_on.set()

    def look_again(self) -> None:
        self._loop.look_again()

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        """Run a coroutine on the broker's event loop, and wait for its result."""
        if self.is_paused:
            raise RuntimeError("the broker is paused; call resume() first")
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(timeout_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _end(self) -> None:
        self._faults.attach(None)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._workers.close()
        self._flush_workers.close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


def _are_unbegun(tasks: Iterable[asyncio.Task[Any]]) -> bool:
    return any(
        isinstance(work := task.get_coro(), Coroutine) and getcoroutinestate(work) == CORO_CREATED for task in tasks
    )
