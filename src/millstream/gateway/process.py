"""The gateway as a process: event loop, ports, signals, what is printed, and a stop that loses no answer.

On a signal `/ready` says no; after `notice_ms` long polls and streams end early, nobody new is let in, and what is
under way is finished for up to `drain_ms`; then whatever is left is cut off. A gateway keeps nothing that the next one
would need.
"""

import asyncio
import gc
import logging
import sys
from collections.abc import Sequence

from millstream import __version__
from millstream.gateway.gateway import Gateway
from millstream.gateway.settings import GatewaySettings
from millstream.model.errors import MillstreamError
from millstream.process import logs
from millstream.process.addresses import is_loopback, reachable_host
from millstream.process.event_loop import loop_factory, say_ready
from millstream.process.exit_codes import EXIT_CLEAN, EXIT_FAILED, exit_code
from millstream.process.parent_watch import end_with_parent
from millstream.process.process_stats import open_as_many_files_as_allowed
from millstream.process.settings import PORT_OFF
from millstream.process.signals import watch_signals

log = logging.getLogger(__name__)

NO_LOGIN = "There is no login yet: whoever reaches this address may read and change everything."


def run(settings: GatewaySettings) -> int:
    """Run a gateway until a signal ends it. Gives the exit code; what went wrong is on standard error."""
    end_with_parent()
    logs.configure(settings.log_level, settings.log_format)
    open_as_many_files_as_allowed()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(settings))
    except MillstreamError as problem:
        sys.stderr.write(f"millstream: {problem.detail}\n")
        return exit_code(problem)
    except OSError as problem:
        sys.stderr.write(f"millstream: cannot start: {problem}\n")
        return EXIT_FAILED


async def _serve(settings: GatewaySettings) -> int:
    stopping = asyncio.Event()
    watch_signals(stopping)
    gateway = Gateway(settings)
    try:
        await gateway.start()
        gc.collect()
        gc.freeze()  # What has been imported lives as long as the process.
        if not is_loopback(settings.host):
            log.warning("others can reach this gateway, and there is no login yet", extra={"host": settings.host})
        say_ready(announcement(settings, gateway.http_port, gateway.grpc_port))
        await stopping.wait()
        await gateway.drain()
    finally:
        await gateway.close()
    log.info("the gateway has stopped")
    return EXIT_CLEAN


def announcement(settings: GatewaySettings, http_port: int, grpc_port: int) -> Sequence[str]:
    """What is printed once both ports are open."""
    host = reachable_host(settings.host)
    places = []
    tries: list[str] = []
    if http_port != PORT_OFF:
        address = f"http://{_bracketed(host)}:{http_port}"
        places.append(f"web API on {address}")
        tries = [
            f"""  curl {address}/events -d '{{"topic": "greetings", "value": "hello from curl"}}'""",
            f"""  curl "{address}/events?topic=greetings&offset=0\"""",
            f"  {address}/docs shows everything in a browser",
        ]
    if grpc_port != PORT_OFF:
        places.append(f"gRPC on {_bracketed(host)}:{grpc_port}")
    lines = [f"Millstream {__version__} gateway is ready: {', '.join(places)}", *tries]
    return lines if is_loopback(settings.host) else [*lines, f"Warning: {NO_LOGIN}"]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
