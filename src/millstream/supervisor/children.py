"""Runs child processes and restarts them when they end.

Invariants: a child has at most one process at a time, and none after `stop`. The kernel ends the child when this
process ends for any reason (`process.parent_watch`).
"""

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Collection, Mapping, Sequence

log = logging.getLogger(__name__)

PAUSE_MIN_S = 0.2
PAUSE_MAX_S = 30.0
STEADY_S = 10.0
"""A child that ran for longer is restarted after PAUSE_MIN_S. Otherwise each pause is twice as long as the last."""

OnLine = Callable[[bytes], None]


def millstream_command(*arguments: str) -> list[str]:
    """Returns a `millstream` command line of this installation."""
    return [sys.executable, "-m", "millstream.cli", *arguments]


class Child:
    """A process that is restarted when it ends, unless its exit code is one of `hopeless`.

    `command` is called before each start. The child inherits the standard output and error of this
    process, unless `on_output` or `on_error` receives the lines.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        environment: Mapping[str, str],
        *,
        hopeless: Collection[int] = (),
        on_output: OnLine | None = None,
        on_error: OnLine | None = None,
        on_end: Callable[[int], None] | None = None,
    ) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        self._hopeless = hopeless
        self._outputs = (on_output, on_error)
        self._on_end = on_end
        self._process: Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._start_error = ""

    @property
    def start_error(self) -> str:
        """The reason why the last start failed, or an empty text if it did not."""
        return self._start_error

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Starts the process and keeps it running."""
        assert self._running is None, "a child has at most one process"
        self._stopping.clear()
        self._running = asyncio.get_running_loop().create_task(self._keep_running(), name=f"keep {self.name}")

    async def stop(self, limit_s: float) -> None:
        """Ends the process with SIGTERM, or with SIGKILL if it still runs after `limit_s`."""
        self._stopping.set()
        running, self._running = self._running, None
        if running is None:
            return
        self._signal(signal.SIGTERM)
        ended, _ = await asyncio.wait((running,), timeout=limit_s)
        if not ended:
            log.warning("child not stopped in time, killing it", extra={"child": self.name})
            self._signal(signal.SIGKILL)
            await asyncio.wait((running,))

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            try:
                self._process.send_signal(number)
            except ProcessLookupError:
                pass  # The process has just ended.

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = PAUSE_MIN_S
        while True:
            begun_s = loop.time()
            try:
                code = await self._run()
            except OSError as problem:
                log.error("child not started", extra={"child": self.name, "error": str(problem)})
                self._start_error, code = str(problem), None
            if self._stopping.is_set():
                return
            if code in self._hopeless:
                log.warning("child exited, not restarting", extra={"child": self.name, "code": code})
                return
            if loop.time() - begun_s > STEADY_S:
                pause_s = PAUSE_MIN_S
            fields = {"child": self.name, "code": code, "pause_s": pause_s}
            log.warning("child exited, restarting", extra=fields)
            if await self._stops_within(pause_s):
                return
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _stops_within(self, pause_s: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), pause_s)
        except TimeoutError:
            return False
        return True

    async def _run(self) -> int:
        """Runs the process until it ends. Returns its exit code."""
        outputs = [None if on_line is None else PIPE for on_line in self._outputs]
        # Its own session, so that Ctrl-C reaches only the supervisor, which ends its children in order.
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command(),
            stdin=DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            env=self._environment,
            start_new_session=True,
        )
        self._start_error = ""
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)
        try:
            streams = zip((process.stdout, process.stderr), self._outputs, strict=True)
            await asyncio.gather(*(_read(stream, on_line) for stream, on_line in streams if stream and on_line))
            code = await process.wait()
        finally:
            self._process = None
        if self._on_end is not None:
            self._on_end(code)
        return code


async def _read(stream: asyncio.StreamReader, on_line: OnLine) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            continue  # The line is longer than any that Millstream prints, and was discarded.
        if not line:
            return
        on_line(line)
