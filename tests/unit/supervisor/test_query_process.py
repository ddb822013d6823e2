"""Tests the query process: its limits hold for every statement, and it ends whenever a query must end."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from millstream.catalog.queries import LimitedQuery
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.workers import ThreadWorkers
from millstream.supervisor import query_process
from millstream.supervisor.query_process import ProcessQueryEngine

WAIT_S = 60.0
MEMORY_BYTES = 64 * 2**20
LARGE = "printf('%.*c', 1000000, 'x')"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT {what} FROM n"
SLOW_LIKE = "SELECT " + " + ".join([f"({LARGE} LIKE '%{'x' * 980}y')"] * 60)
"""Takes minutes within a few calls of a function, in which SQLite checks nothing."""


def with_engine(directory: Path, story: Callable[[ProcessQueryEngine], Awaitable[None]]) -> None:
    path = directory / "catalog.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE topics (name TEXT)")
    connection.execute("INSERT INTO topics VALUES ('orders')")
    connection.commit()
    connection.close()

    async def run() -> None:
        workers = ThreadWorkers(2, "queries")
        engine = ProcessQueryEngine(path, workers=workers, memory_bytes=MEMORY_BYTES)
        try:
            async with asyncio.timeout(WAIT_S):
                await story(engine)
        finally:
            await engine.close()
            workers.close()

    asyncio.run(run())


async def rows_of(engine: ProcessQueryEngine, sql: str) -> tuple[bytes, ...]:
    return (await engine.execute(LimitedQuery(sql, 10_000, WAIT_S))).rows


async def pid_of(engine: ProcessQueryEngine) -> int:
    assert await rows_of(engine, "SELECT name FROM topics") == (b'["orders"]',)
    assert engine.pid is not None
    return engine.pid


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def proc_file(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def kill_and_wait(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_one_query_process_serves_many_queries(tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        assert engine.pid is None, "the process starts at the first query"
        first = await pid_of(engine)
        with pytest.raises(MillstreamError) as refused:
            await rows_of(engine, "SELECT randomblob(1)")
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert await rows_of(engine, "SELECT 1 WHERE 0") == ()
        assert await pid_of(engine) == first

    with_engine(tmp_path, story)


def test_closing_the_engine_ends_the_query_process(tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        pid = await pid_of(engine)
        await engine.close()
        assert not is_running(pid)
        assert await pid_of(engine) != pid

    with_engine(tmp_path, story)


def test_an_idle_query_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_process, "IDLE_S", 0.001)

    async def story(engine: ProcessQueryEngine) -> None:
        assert await rows_of(engine, "SELECT 1") == (b"[1]",)
        while engine.pid is not None:  # noqa: ASYNC110  # no event signals the end
            await asyncio.sleep(0)

    with_engine(tmp_path, story)


@pytest.mark.parametrize("sql", [SLOW_LIKE, ENDLESS.format(what="count(*)")])
def test_a_cancelled_query_ends_its_process_at_once(sql: str, tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        pid = await pid_of(engine)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await rows_of(engine, sql)
        assert engine.pid is None
        assert await pid_of(engine) != pid
        await engine.close()
        assert not is_running(pid)

    with_engine(tmp_path, story)


def test_a_query_cancelled_during_the_start_leaves_no_process(tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        starting = asyncio.create_task(rows_of(engine, "SELECT 1"))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait((starting,))
        assert starting.cancelled()
        assert await rows_of(engine, "SELECT 2") == (b"[2]",)

    with_engine(tmp_path, story)
    assert not _children()


def _children() -> list[int]:
    """The query processes of this process that still run."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = each.read_text().rpartition(")")[2].split()[1]
            command = each.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if parent == str(os.getpid()) and b"query_worker" in command:
            found.append(int(each.parent.name))
    return found


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + ", ".join([LARGE] * 150),
        ENDLESS.format(what="i") + f" ORDER BY {LARGE} || i",
        f"WITH RECURSIVE n(i, v) AS (SELECT 0, {LARGE} UNION SELECT i + 1, {LARGE} || i FROM n) SELECT i FROM n",
    ],
)
def test_a_query_above_the_memory_limit_is_refused(sql: str, tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        pid = await pid_of(engine)
        with pytest.raises(MillstreamError) as refused:
            await rows_of(engine, sql)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert "more memory than query_memory_bytes (64MiB)" in refused.value.detail
        assert await pid_of(engine) != pid, "the memory of the old process may be fragmented"

    with_engine(tmp_path, story)


def test_the_kernel_limits_memory_files_and_core_dumps_of_the_process(tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        limits = proc_file(await pid_of(engine), "limits").splitlines()
        found = {line[:26].strip(): line[26:].split()[:2] for line in limits}
        assert found["Max data size"] == [str(MEMORY_BYTES)] * 2
        assert found["Max file size"] == ["0", "0"]
        assert found["Max core file size"] == ["0", "0"]

    with_engine(tmp_path, story)


def test_a_query_above_its_cpu_time_ends_with_a_timeout(tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        with pytest.raises(MillstreamError) as ended:
            await engine.execute(LimitedQuery(SLOW_LIKE, 1, 0.1))
        assert ended.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "CPU time" in ended.value.detail
        assert await rows_of(engine, "SELECT 1") == (b"[1]",)

    with_engine(tmp_path, story)


def test_the_next_query_replaces_a_process_that_has_ended(tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        pid = await pid_of(engine)
        kill_and_wait(pid)
        assert await pid_of(engine) != pid

    with_engine(tmp_path, story)


def test_a_query_whose_process_is_killed_fails_with_the_reason(tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        pid = await pid_of(engine)
        running = asyncio.create_task(rows_of(engine, ENDLESS.format(what="count(*)")))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(MillstreamError) as ended:
            await running
        assert ended.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "exit code -9" in ended.value.detail
        assert await pid_of(engine) != pid

    with_engine(tmp_path, story)


def test_a_process_that_cannot_be_started_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", str(tmp_path / "missing"))
            with pytest.raises(MillstreamError) as failed:
                await rows_of(engine, "SELECT 1")
        assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "the query process cannot be started" in failed.value.detail
        assert await rows_of(engine, "SELECT 1") == (b"[1]",)

    with_engine(tmp_path, story)


def test_the_process_imports_only_the_standard_library_and_its_own_modules(tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        assert "site-packages" not in proc_file(await pid_of(engine), "maps")

    with_engine(tmp_path, story)
    program = (
        f"import sys; sys.path.append({str(Path(query_process.__file__).parents[2])!r}); "
        "import millstream.catalog.query_worker; print(*(name for name in sys.modules if 'millstream' in name))"
    )
    command = [sys.executable, "-I", "-S", "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S).stdout.split()
    assert set(found) == {
        "millstream",
        "millstream.catalog",
        "millstream.catalog.query_worker",
        "millstream.catalog.statement",
        "millstream.process",
        "millstream.process.parent_watch",
    }


def test_closing_the_engine_during_the_start_leaves_no_process(tmp_path: Path) -> None:
    async def story(engine: ProcessQueryEngine) -> None:
        starting = asyncio.create_task(rows_of(engine, "SELECT 1"))
        await asyncio.sleep(0)
        await engine.close()
        with pytest.raises(MillstreamError) as ended:
            await starting
        assert ended.value.code is ErrorCode.SHUTTING_DOWN
        assert not _children()

    with_engine(tmp_path, story)
