"""Pings the child processes over their connections to the control socket, and reports those that do not answer.

A child that hangs keeps its process, its ports and its connections, so only a missing answer shows it.

Invariant: a connection has at most one unanswered ping, so a stopped process cannot make its send buffer grow.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from millstream.process.findings import Finding

log = logging.getLogger(__name__)

PERIOD_S = 5.0
TIMEOUT_S = 3.0
SETTLE_S = 0.05
"""Time for answers that arrived while this process itself was busy."""


def _send_nothing() -> None:
    """The process has no connection."""


class PingedChild:
    """One child process with its connection. `send_ping` writes a ping to the connection."""

    def __init__(self, pid: int, send_ping: Callable[[], None]) -> None:
        self.pid = pid
        self._send_ping = send_ping
        self._pinged_s: float | None = None
        self._answered_at = datetime.now(UTC)
        self._is_silent = False
        self.problems: Sequence[str] = ()

    @property
    def silent_since(self) -> datetime | None:
        """The time of the last answer, if the child does not answer; None if it does."""
        return self._answered_at if self._is_silent else None

    def ping(self) -> None:
        """Sends a ping, unless the last one is not answered yet."""
        if self._pinged_s is None:
            self._pinged_s = time.monotonic()
            self._send_ping()

    def answered(self, problems: Sequence[str]) -> None:
        """Takes the answer to the ping."""
        if self._is_silent:
            log.info("child answers again", extra={"pid": self.pid, "silent_s": self._silent_s()})
        self._pinged_s, self._is_silent, self._answered_at = None, False, datetime.now(UTC)
        self.problems = problems

    def check(self, timeout_s: float) -> None:
        """Counts the child as silent if it has not answered a ping for `timeout_s`."""
        if not self._is_silent and self._pinged_s is not None and time.monotonic() - self._pinged_s >= timeout_s:
            self._is_silent = True
            log.warning("child does not answer", extra={"pid": self.pid, "silent_s": self._silent_s()})

    def _silent_s(self) -> float:
        return round((datetime.now(UTC) - self._answered_at).total_seconds(), 1)


class ChildPings:
    """The child processes, each with its connection. `run` pings them until it is cancelled.

    `serving` returns the processes that should have a connection. One without a connection counts as silent too: it may
    have stopped before it could connect.
    """

    def __init__(
        self, serving: Callable[[], Iterable[int]] = tuple, period_s: float = PERIOD_S, timeout_s: float = TIMEOUT_S
    ) -> None:
        assert timeout_s < period_s, "a ping has its result before the next one"
        self._serving = serving
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._connected: dict[int, PingedChild] = {}
        self._unconnected: dict[int, PingedChild] = {}

    def connected(self, pid: int, send_ping: Callable[[], None]) -> PingedChild:
        """Adds the connection of a child process, which replaces an older one."""
        child = self._connected[pid] = PingedChild(pid, send_ping)
        if (late := self._unconnected.pop(pid, None)) is not None:
            late.answered(())
        return child

    def disconnected(self, child: PingedChild) -> None:
        if self._connected.get(child.pid) is child:
            del self._connected[child.pid]

    async def run(self) -> None:
        while True:
            self._unconnected = {
                pid: self._unconnected.get(pid) or PingedChild(pid, _send_nothing)
                for pid in self._serving()
                if pid not in self._connected
            }
            for child in self._children():
                child.ping()
            await asyncio.sleep(self._timeout_s)
            await asyncio.sleep(SETTLE_S)
            for child in self._children():
                child.check(self._timeout_s)
            await asyncio.sleep(self._period_s - self._timeout_s)

    def _children(self) -> Sequence[PingedChild]:
        return [*self._connected.values(), *self._unconnected.values()]

    def is_silent(self, pid: int | None) -> bool:
        """Returns True if the process with this id does not answer."""
        return any(child.pid == pid and child.silent_since is not None for child in self._children())

    def findings(self, name: str, pid: int | None, *, blocks_ready: bool = False) -> list[Finding]:
        """Returns that the process of this name does not answer, or else the problems that it reported."""
        child = next((each for each in self._children() if each.pid == pid), None)
        if child is None:
            return []
        if child.silent_since is None:
            return [Finding(f"{name}: {problem}") for problem in child.problems]
        since = child.silent_since.isoformat(timespec="seconds")
        text = (
            f"{name} has not answered since {since}: its process {pid} is stopped, hangs or is overloaded;"
            f" `kill -KILL {pid}` makes the supervisor start it again"
        )
        return [Finding(text, blocks_ready=blocks_ready)]
