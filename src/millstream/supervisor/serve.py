"""Runs one broker as a process, with the real clock, disk, network, threads and catalog, and with signals.

All logic is in `node`; this file contains only what cannot be simulated.
"""

import asyncio
import gc
import logging
import os
import shlex
import sys
from pathlib import Path

from millstream import __version__
from millstream.catalog.sqlite import SqliteCatalog
from millstream.node.allocator import keep_freed_memory
from millstream.node.node import Node
from millstream.node.settings import TABLE, BrokerSettings
from millstream.process import logs
from millstream.process.addresses import reachable_host
from millstream.process.event_loop import run_process, say_ready
from millstream.process.exit_codes import EXIT_CLEAN
from millstream.process.parent_watch import PARENT_VARIABLE, end_with_parent
from millstream.process.process_stats import open_as_many_files_as_allowed, process_metrics, segment_files_max
from millstream.process.signals import watch_signals
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.local_disk import LocalDisk
from millstream.seams.network import TcpNetwork
from millstream.seams.workers import ThreadWorkers, Workers
from millstream.supervisor.gateway_start import prepare_gateway
from millstream.supervisor.owner_only import restrict
from millstream.supervisor.query_process import ProcessQueryEngine
from millstream.supervisor.resolved_settings import resolved

log = logging.getLogger(__name__)

CATALOG_FILE = "catalog.sqlite"
DISK_THREADS = 4


def run(settings: BrokerSettings) -> int:
    """Runs a broker until a signal ends it. Prints errors on standard error. Returns the exit code."""
    end_with_parent()
    gc.freeze()  # Imported modules live as long as the process.
    gc.enable()
    logs.configure(settings.log_level, settings.log_format)
    TABLE.log_changed(log, settings)
    keep_freed_memory()
    descriptors_max = open_as_many_files_as_allowed()
    return run_process(lambda: _serve(settings, resolved(settings), descriptors_max))


async def _serve(given: BrokerSettings, settings: BrokerSettings, descriptors_max: int) -> int:
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    restrict(settings.data)
    entropy = SystemEntropy()
    workers = ThreadWorkers(DISK_THREADS, "millstream-disk")
    flush_workers = ThreadWorkers(max(2, len(settings.data)), "millstream-flush")
    path = Path(settings.data[0], CATALOG_FILE)
    queries = ProcessQueryEngine(path, workers=workers, memory_bytes=settings.query_memory_bytes)
    catalog = SqliteCatalog(path, workers=workers, clock=clock, entropy=entropy, query_engine=queries)
    node = Node(
        settings,
        clock=clock,
        disk=LocalDisk(),
        network=TcpNetwork(),
        workers=workers,
        flush_workers=flush_workers,
        catalog=catalog,
        entropy=entropy,
        process_metrics=process_metrics,
        open_files_max=segment_files_max(descriptors_max),
        descriptors_max=descriptors_max,
    )
    stopping = asyncio.Event()
    watch_signals(stopping)
    try:
        await prepare_gateway(settings, node, workers)
        if await _start_unless(stopping, node):
            _settle_memory()
            _announce(given, node, clock.monotonic_s() - begun_s)
            await _supervise(settings, node, workers, stopping)
    finally:
        await node.stop()
        workers.close()
        flush_workers.close()
    log.info("broker stopped")
    return EXIT_CLEAN


async def _supervise(settings: BrokerSettings, node: Node, workers: Workers, stopping: asyncio.Event) -> None:
    """Runs the supervisor until the broker is stopped. A broker that was started by a supervisor runs none."""
    if PARENT_VARIABLE in os.environ:
        from millstream.supervisor.clusters.ping_answers import answering_pings  # Only such a broker needs it.

        async with answering_pings(node.problems):
            await stopping.wait()
        return
    from millstream.supervisor.supervisor import Supervisor  # Imported only now, so that the broker is ready sooner.

    supervisor = Supervisor(settings, node, workers)
    try:
        await supervisor.start()
        await stopping.wait()
    finally:
        await supervisor.stop()


async def _start_unless(stopping: asyncio.Event, node: Node) -> bool:
    """Starts the node. Returns False if a signal arrives before it is ready."""
    start = asyncio.ensure_future(node.start())
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            return True
        start.cancel()
        await asyncio.wait((start,))
        return False
    finally:
        stop.cancel()


def _settle_memory() -> None:
    # All objects that exist now live as long as the process, so the garbage collector need not scan them again. A
    # broker creates few cycles, so the collector may run less often.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _announce(settings: BrokerSettings, node: Node, took_s: float) -> None:
    """Prints the ready message on standard output, with commands to try."""
    host = reachable_host(settings.host)
    address = f"{host}:{node.kafka_port}"
    lines = [
        f"Millstream {__version__} is ready on {address} after {took_s:.2f} s"
        f" (data in {', '.join(settings.data)}; flush={settings.flush}).",
        "",
        "Try in another terminal:",
        f"  {_command()} put greetings hello --bootstrap {address}",
        f"  {_command()} get greetings --bootstrap {address}",
        f"  echo hello | kcat -P -b {address} -t greetings",
        f"  kcat -C -b {address} -t greetings -e",
    ]
    if node.operator_port > 0:
        lines.append(f"  curl http://{host}:{node.operator_port}/metrics")
    lines += ["", "Ctrl-C stops it."]
    say_ready(lines)


def _command() -> str:
    """Returns the command that runs this program from any directory: its name alone if it is on the PATH."""
    directory, name = os.path.split(os.path.abspath(sys.argv[0]))
    if name != "millstream":
        return f"{shlex.quote(sys.executable)} -m millstream.cli"
    if directory in os.environ.get("PATH", "").split(os.pathsep):
        return name
    return shlex.quote(os.path.join(directory, name))
