"""Executes queries in a child process, which can be ended at any moment and whose memory and CPU time are limited.

The process (`catalog.query_worker`) starts at the first query and serves the next ones, one at a time. Cancelling a
query kills the process, so the end of a query never depends on SQLite. The next query starts a new one. A process that
is idle for IDLE_S ends. The kernel ends it together with the broker (`process.parent_watch`).

Invariant: at most one process is in use, and it has at most one query.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import millstream
from millstream.catalog.queries import LimitedQuery, refused
from millstream.catalog.query_worker import LENGTH
from millstream.catalog.statement import QueryResult
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.units import format_size_bytes
from millstream.process.parent_watch import environment_of_child
from millstream.seams.workers import Workers

log = logging.getLogger(__name__)

IDLE_S = 60.0
FRAME_BYTES_MAX = 16 * 1024 * 1024

_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(millstream.__file__)))
_START = (
    "import sys; sys.path.append(sys.argv[1]); from millstream.catalog.query_worker import serve; "
    "serve(sys.argv[2], int(sys.argv[3]))"
)
"""Runs without the `site` module and Python's environment variables, so the start is fast on every installation."""


class ProcessQueryEngine:
    """Executes the queries of one catalog file."""

    def __init__(self, path: Path, *, workers: Workers, memory_bytes: int) -> None:
        """The kernel ends a process with the thread that started it, so `workers` must live until `close`."""
        self._path = path
        self._workers = workers
        self._memory_bytes = memory_bytes
        self._process: _QueryProcess | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Future[Any]] = set()
        """Processes that are killed and not yet gone, and starts whose query was cancelled."""
        self._turn = asyncio.Lock()
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        return self._process.popen.pid if self._process else None

    async def execute(self, query: LimitedQuery) -> QueryResult:
        assert not self._turn.locked(), "a process has at most one query"
        async with self._turn:
            self._is_closed = False
            self._stop_idle_timer()
            try:
                return await self._execute(query)
            finally:
                if self._process is not None:
                    self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end)

    async def close(self) -> None:
        """Ends the process, and waits for its end."""
        self._is_closed = True
        self._end()
        async with self._turn:
            await self._all_gone()

    async def _all_gone(self) -> None:
        while self._ending:
            await asyncio.wait(self._ending)

    async def _execute(self, query: LimitedQuery) -> QueryResult:
        process = self._process
        if process is None or process.has_ended:
            self._end()
            process = self._process = await self._start()
        if self._is_closed:
            self._end()
            raise MillstreamError(ErrorCode.SHUTTING_DOWN, "the catalog was closed before the query began")
        try:
            answer, rows = await process.ask(query)
        except (asyncio.IncompleteReadError, OSError, ValueError) as error:
            raise _ended_early(await self._end_of(process), query) from error
        except BaseException:
            self._end()
            raise
        if "refused" in answer:
            raise refused(answer["refused"])
        if "out_of_memory" in answer:
            self._end()  # Its free memory may be fragmented.
            limit = format_size_bytes(self._memory_bytes)
            raise refused(f"it needs more memory than query_memory_bytes ({limit}); select less, or raise the setting")
        return QueryResult(tuple(answer["columns"]), tuple(rows.split(b"\n")) if rows else (), answer["truncated"])

    async def _start(self) -> "_QueryProcess":
        starting = self._workers.run(self._spawn)
        try:
            popen, connection = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._ending.add(starting)
            starting.add_done_callback(self._end_unused)
            raise
        except OSError as error:
            text = f"the query process cannot be started: {error}"
            raise MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            connection.close()
            self._kill(popen)
            raise
        log.debug("query process started", extra={"pid": popen.pid})
        return _QueryProcess(popen, reader, writer)

    def _spawn(self) -> tuple["subprocess.Popen[bytes]", socket.socket]:
        """Starts the process in a worker, because the start blocks until the program is loaded."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                popen = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _START, _PACKAGES, str(self._path), str(self._memory_bytes)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env=environment_of_child(),
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        return popen, ours

    def _end_unused(self, starting: "asyncio.Future[tuple[subprocess.Popen[bytes], socket.socket]]") -> None:
        self._ending.discard(starting)
        if not starting.cancelled() and starting.exception() is None:
            popen, connection = starting.result()
            connection.close()
            self._kill(popen)

    def _end(self) -> None:
        process, self._process = self._process, None
        self._stop_idle_timer()
        if process is not None:
            process.writer.transport.abort()
            self._kill(process.popen)

    async def _end_of(self, process: "_QueryProcess") -> int:
        """Ends the process and returns its exit code. A negative code is the number of a signal."""
        self._end()
        await self._all_gone()
        return process.popen.wait()

    def _kill(self, popen: "subprocess.Popen[bytes]") -> None:
        popen.kill()
        ending = self._workers.run(popen.wait)
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _stop_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


class _QueryProcess(NamedTuple):
    popen: "subprocess.Popen[bytes]"
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def has_ended(self) -> bool:
        return self.popen.poll() is not None

    async def ask(self, query: LimitedQuery) -> tuple[dict[str, Any], bytes]:
        """Sends the query and returns the response: an object, and the rows. Raises an error if the process ends."""
        request = json.dumps({"sql": query.sql, "rows_max": query.rows_max, "cpu_s": query.timeout_s}).encode()
        self.writer.write(LENGTH.pack(len(request)) + request)
        header = await self._frame()
        return json.loads(header), await self._frame()

    async def _frame(self) -> bytes:
        (size,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
        if size > FRAME_BYTES_MAX:
            raise ValueError(f"the query process sent a frame of {size} bytes")
        return await self.reader.readexactly(size)


def _ended_early(code: int, query: LimitedQuery) -> MillstreamError:
    if code == -signal.SIGXCPU:
        text = f"the query used more than {query.timeout_s:g} s of CPU time; narrow it or raise its timeout"
        return MillstreamError(ErrorCode.REQUEST_TIMED_OUT, text)
    log.warning("query process ended unexpectedly", extra={"code": code})
    text = f"the query process ended unexpectedly (exit code {code}); select less, or see the broker's log"
    return MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
