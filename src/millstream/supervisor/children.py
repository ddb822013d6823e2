"""Processes that run as long as their supervisor does.

Invariants: there is at most one process of a child at a time; after `stop` there is none; and the kernel ends it when
this process ends, in whatever way (`process.parent_watch`).
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
"""A child that ran for so long is started again at once; one that did not waits, each time twice as long."""

OnLine = Callable[[bytes], None]


def millstream_command(*arguments: str) -> list[str]:
    """A command of this very installation."""
    return [sys.executable, "-m", "millstream.cli", *arguments]


class Child:
    """One process, started again when it ends by itself, unless it ends with one of the codes in `hopeless`.

    `command` is asked before each start. What it prints goes where our own goes, or to `on_output` and `on_error`.
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
        self._keeping: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it, and keep it running."""
        self._stopping.clear()
        self._keeping = asyncio.get_running_loop().create_task(self._keep(), name=f"keep {self.name}")

    async def stop(self, limit_s: float) -> None:
        """End it as an operator does, and after `limit_s` at once."""
        self._stopping.set()
        keeping, self._keeping = self._keeping, None
        if keeping is None:
            return
        self._signal(signal.SIGTERM)
        ended, _ = await asyncio.wait((keeping,), timeout=limit_s)
        if not ended:
            log.warning("a process does not end and is killed", extra={"child": self.name})
            self._signal(signal.SIGKILL)
            await asyncio.wait((keeping,))

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            try:
                self._process.send_signal(number)
            except ProcessLookupError:
                pass  # It has just ended.

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = PAUSE_MIN_S
        while True:
            begun_s = loop.time()
            try:
                code = await self._run()
            except OSError as problem:
                log.error("a process cannot be started", extra={"child": self.name, "why": str(problem)})
                code = None
            if self._stopping.is_set():
                return
            if code in self._hopeless:
                log.warning("a process has ended and is not started again", extra={"child": self.name, "code": code})
                return
            if loop.time() - begun_s > STEADY_S:
                pause_s = PAUSE_MIN_S
            told = {"child": self.name, "code": code, "pause_s": pause_s}
            log.warning("a process has ended and is started again", extra=told)
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
        """One life of the process; its exit code."""
        outputs = [None if on_line is None else PIPE for on_line in self._outputs]
        # In a session of its own, so that Ctrl-C reaches us alone and we end it when it is its turn.
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command(),
            stdin=DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            env=self._environment,
            start_new_session=True,
        )
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
            continue  # Longer than anything that we print; it was thrown away.
        if not line:
            return
        on_line(line)
