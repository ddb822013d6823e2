"""Runs the gateway as a process: event loop, ports, signals, startup message and graceful stop.

Stop sequence after a signal: `/ready` answers 503. After `notice_ms` the gateway ends long polls and streams early and
refuses new connections. Requests in progress get up to `drain_ms`, then the gateway cuts them off. A gateway keeps no
state that its successor needs.
"""

import asyncio
import gc
import logging
from collections.abc import Sequence

from millstream import __version__
from millstream.gateway.gateway import Gateway
from millstream.gateway.settings import TABLE, GatewaySettings
from millstream.process import logs
from millstream.process.addresses import is_loopback, reachable_host
from millstream.process.event_loop import run_process, say_ready
from millstream.process.exit_codes import EXIT_CLEAN
from millstream.process.parent_watch import end_with_parent
from millstream.process.process_stats import open_as_many_files_as_allowed
from millstream.process.settings import PORT_OFF
from millstream.process.signals import watch_signals

log = logging.getLogger(__name__)

NO_LOGIN = "No authentication: anyone who can reach this address can read and change all data."


def run(settings: GatewaySettings) -> int:
    """Run a gateway until a signal stops it. Returns the exit code; errors are on standard error."""
    end_with_parent()
    logs.configure(settings.log_level, settings.log_format)
    TABLE.log_changed(log, settings)
    open_as_many_files_as_allowed()
    return run_process(lambda: _serve(settings))


async def _serve(settings: GatewaySettings) -> int:
    stopping = asyncio.Event()
    watch_signals(stopping)
    gateway = Gateway(settings)
    try:
        await gateway.start()
        gc.collect()
        gc.freeze()  # Imported modules live as long as the process; collections need not visit them.
        if not is_loopback(settings.host):
            log.warning("gateway reachable from other hosts without authentication", extra={"host": settings.host})
        say_ready(announcement(settings, gateway.http_port, grpc_port=gateway.grpc_port))
        await stopping.wait()
        await gateway.drain()
    finally:
        await gateway.close()
    log.info("gateway stopped")
    return EXIT_CLEAN


def announcement(settings: GatewaySettings, http_port: int, *, grpc_port: int) -> Sequence[str]:
    """Return the startup message, printed once all ports are open."""
    host = reachable_host(settings.host)
    interfaces = []
    try_lines: list[str] = []
    if http_port != PORT_OFF:
        address = f"http://{_bracketed(host)}:{http_port}"
        interfaces.append(f"web API on {address}")
        try_lines = [
            f"""  curl {address}/events -d '{{"topic": "greetings", "value": "hello from curl"}}'""",
            f"""  curl "{address}/events?topic=greetings&offset=0\"""",
            f"  open {address}/docs in a browser for the documentation",
        ]
    if grpc_port != PORT_OFF:
        interfaces.append(f"gRPC on {_bracketed(host)}:{grpc_port}")
    lines = [f"Millstream {__version__} gateway is ready: {', '.join(interfaces)}", *try_lines]
    return lines if is_loopback(settings.host) else [*lines, f"Warning: {NO_LOGIN}"]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
