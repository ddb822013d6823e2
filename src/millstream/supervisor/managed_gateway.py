"""Runs the gateway of `millstream serve` as a process, copies its output, and tracks whether it serves clients.

Invariant: the gateway is up only while its process runs.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from millstream.process.exit_codes import EXIT_NOT_INSTALLED, EXIT_SETTINGS
from millstream.process.findings import Finding
from millstream.process.parent_watch import environment_of_child
from millstream.supervisor.children import Child
from millstream.supervisor.gateway_start import gateway_starting
from millstream.supervisor.last_lines import LastLines, ended

STOP_LIMIT_S = 10.0
"""Time after which a gateway is killed that does not stop within its own limits."""

_READY = b" gateway is ready: "
_HOPELESS = (EXIT_SETTINGS, EXIT_NOT_INSTALLED)


class ManagedGateway:
    """A gateway process. `command` is called before each start."""

    def __init__(self, command: Callable[[], Sequence[str]]) -> None:
        self._last_lines = LastLines()
        self._is_up = False
        self._end = ""
        self._end_code: int | None = None
        self._child = Child(
            "gateway",
            command,
            environment_of_child(),
            hopeless=_HOPELESS,
            on_output=self._on_output_line,
            on_error=self._on_log_line,
            on_end=self._ended,
        )

    def start(self) -> None:
        self._child.start()

    async def stop(self) -> None:
        await self._child.stop(STOP_LIMIT_S)

    @property
    def serving_pid(self) -> int | None:
        """The process that serves clients, if there is one."""
        return self._child.pid if self._is_up else None

    @property
    def is_installed(self) -> bool:
        """False once the process has reported that the packages of the gateway are not installed."""
        return self._end_code != EXIT_NOT_INSTALLED

    def findings(self) -> Sequence[Finding]:
        """Returns why the gateway does not serve, or nothing if it does.

        A gateway that is not installed is a warning: the broker is complete without it.
        """
        assert not self._is_up or self._child.pid is not None, "the gateway is up only while its process runs"
        if self._is_up:
            return ()
        if self._child.start_error:
            return (Finding(f"the gateway cannot be started: {self._child.start_error}", blocks_ready=True),)
        if not self.is_installed:
            return (Finding(self._end, is_problem=False),)
        return (Finding(self._end, blocks_ready=True),) if self._end else gateway_starting()

    def _on_output_line(self, line: bytes) -> None:
        if _READY in line:
            self._is_up, self._end, self._end_code = True, "", None
        _copy(line, sys.stdout)

    def _on_log_line(self, line: bytes) -> None:
        self._last_lines.add(line)
        _copy(line, sys.stderr)

    def _ended(self, code: int) -> None:
        reason = self._last_lines.reason(code)
        self._last_lines.clear()
        next_step = "it is not restarted" if code in _HOPELESS else "it is restarted"
        self._is_up, self._end_code = False, code
        self._end = f"the gateway {ended(code)} and {next_step}" + (f": {reason}" if reason else "")


def _copy(line: bytes, stream: TextIO | None) -> None:
    try:
        if stream is not None:
            stream.write(line.decode(errors="replace"))
            stream.flush()
    except OSError:
        pass  # The gateway can serve without a reader of its output.
