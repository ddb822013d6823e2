"""Tests what a supervised gateway reports while it starts, serves, fails, and is not installed."""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from millstream.process.exit_codes import EXIT_ADDRESS, EXIT_NOT_INSTALLED
from millstream.process.findings import Finding
from millstream.supervisor import children
from millstream.supervisor.gateway_start import STARTING
from millstream.supervisor.managed_gateway import ManagedGateway

WAIT_S = 60.0
READY = "print('Millstream 1 gateway is ready: web API on http://127.0.0.1:1', flush=True)"
SERVES = f"import time; {READY}; time.sleep(600)"
TAKEN = (
    "import sys; print('millstream: cannot listen on 127.0.0.1:1: Address already in use', file=sys.stderr);"
    f"sys.exit({EXIT_ADDRESS})"
)


async def until(gateway: ManagedGateway, wanted: Sequence[Finding]) -> None:
    while (*gateway.findings(),) != (*wanted,):
        await asyncio.to_thread(time.sleep, 0.001)


def follow(programs: Sequence[str], findings: Sequence[Sequence[Finding]], last: Sequence[str] | None = None) -> None:
    """Run one program after another as the gateway, and wait for the findings in order."""
    rest = iter(programs)

    def command() -> Sequence[str]:
        return last or [sys.executable, "-c", next(rest, SERVES)]

    async def story() -> None:
        gateway = ManagedGateway(command)
        gateway.start()
        try:
            async with asyncio.timeout(WAIT_S):
                for wanted in findings:
                    await until(gateway, wanted)
        finally:
            await gateway.stop()

    asyncio.run(story())


def test_a_gateway_blocks_readiness_until_it_serves(capfd: pytest.CaptureFixture[str]) -> None:
    follow([SERVES], [[STARTING], []])
    assert "gateway is ready: web API on http://127.0.0.1:1\n" in capfd.readouterr().out


def test_a_failed_gateway_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "PAUSE_MIN_S", 600.0)
    text = "the gateway exited with code 4 and it is restarted: cannot listen on 127.0.0.1:1: Address already in use"
    follow([TAKEN], [[STARTING], [Finding(text, blocks_ready=True)]])


def test_a_gateway_that_ends_after_it_served_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "PAUSE_MIN_S", 600.0)
    text = "the gateway exited with code 1 and it is restarted"
    follow([f"{READY}; raise SystemExit(1)"], [[Finding(text, blocks_ready=True)]])


def test_the_last_log_line_is_not_the_reason_of_a_killed_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "PAUSE_MIN_S", 600.0)
    program = "import os, sys; print('a client connected', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
    text = "the gateway was ended by SIGKILL and it is restarted"
    follow([program], [[Finding(text, blocks_ready=True)]])


def test_a_restarted_gateway_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "PAUSE_MIN_S", 0.001)
    follow([TAKEN, TAKEN], [[STARTING], []])


def test_a_gateway_that_is_not_installed_is_a_warning() -> None:
    program = (
        "import sys; print('millstream: packages of the gateway are not installed', file=sys.stderr);"
        f"sys.exit({EXIT_NOT_INSTALLED})"
    )
    text = "the gateway exited with code 8 and it is not restarted: packages of the gateway are not installed"
    follow([program], [[STARTING], [Finding(text, is_problem=False)]])


def test_a_gateway_without_a_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "PAUSE_MIN_S", 600.0)
    missing = str(tmp_path / "missing")
    text = f"the gateway cannot be started: [Errno 2] No such file or directory: '{missing}'"
    follow([], [[Finding(text, blocks_ready=True)]], last=[missing])
