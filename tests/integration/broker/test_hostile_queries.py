"""Runs a real broker among hostile SQL queries: they are ended or refused, and other clients are served meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

import millstream
from millstream.testing.real_broker import RealBroker

WAIT_S = 120.0
BROKER_MEMORY_BYTES_MAX = 200 * 2**20
LARGE = "printf('%.*c', 1000000, 'x')"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT {what} FROM n"
WIDE = "WITH t(v) AS (SELECT " + LARGE + ") SELECT {columns} FROM t"
SLOW_LIKE = WIDE.format(columns=" + ".join([f"(v LIKE '%{'x' * 980}y')"] * 30))
SHORT = timedelta(seconds=1)


def with_broker(directory: Path, story: Callable[[RealBroker, "millstream.AsyncClient"], Awaitable[None]]) -> None:
    async def run(broker: RealBroker) -> None:
        async with asyncio.timeout(WAIT_S), await millstream.connect_async(broker.bootstrap) as client:
            await story(broker, client)

    with RealBroker(directory / "data", extra_args=("--query-memory-bytes", "64MiB")) as broker:
        asyncio.run(run(broker))


async def write_and_read_back(client: "millstream.AsyncClient") -> None:
    await client.create_topic("events", exist_ok=True)
    async with client.producer() as producer:
        await producer.put("events", b"hello")
    assert (await client.admin.query("SELECT name FROM topics WHERE name = 'events'")).rows == (("events",),)


async def code_of(query: Awaitable[object]) -> millstream.ErrorCode:
    with pytest.raises(millstream.MillstreamError) as ended:
        await query
    return ended.value.code


def query_processes(broker: RealBroker) -> list[int]:
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = each.read_text().rpartition(")")[2].split()[1]
            command = each.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if parent == str(broker.pid) and b"query_worker" in command:
            found.append(int(each.parent.name))
    return found


def is_running(pid: int) -> bool:
    """False once the process has ended, also if nothing has read its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def peak_memory_bytes(broker: RealBroker) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM in /proc")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (WIDE.format(columns=", ".join(["v"] * 1_900)), "too many columns"),
        (WIDE.format(columns=", ".join(["v"] * 200)), "query_memory_bytes"),
        (ENDLESS.format(what="i") + " ORDER BY randomblob(1000000)", "randomblob"),
        (ENDLESS.format(what="i") + f" ORDER BY {LARGE} || i", "query_memory_bytes"),
    ],
)
def test_a_query_of_large_values_is_refused_and_the_broker_stays_small(sql: str, reason: str, tmp_path: Path) -> None:
    async def story(broker: RealBroker, client: "millstream.AsyncClient") -> None:
        with pytest.raises(millstream.MillstreamError, match=reason) as refused:
            await client.admin.query(sql)
        assert refused.value.code is millstream.ErrorCode.INVALID_REQUEST
        await write_and_read_back(client)
        assert peak_memory_bytes(broker) < BROKER_MEMORY_BYTES_MAX

    with_broker(tmp_path, story)


def test_other_requests_are_answered_during_an_endless_query(tmp_path: Path) -> None:
    async def story(broker: RealBroker, client: "millstream.AsyncClient") -> None:
        await client.create_topic("events")
        order: list[str] = []

        async def attack() -> None:
            assert await code_of(client.admin.query(SLOW_LIKE)) is millstream.ErrorCode.REQUEST_TIMED_OUT
            order.append("query")

        attacking = asyncio.create_task(attack())
        async with client.producer() as producer:
            await producer.put("events", b"hello")
            order.append("put")
        await client.list_topics()
        order.append("list")
        await attacking
        assert order == ["put", "list", "query"]
        await write_and_read_back(client)

    with_broker(tmp_path, story)


def test_a_timeout_ends_a_query_that_checks_nothing(tmp_path: Path) -> None:
    async def story(broker: RealBroker, client: "millstream.AsyncClient") -> None:
        assert await code_of(client.admin.query(SLOW_LIKE, timeout=SHORT)) is millstream.ErrorCode.REQUEST_TIMED_OUT
        await write_and_read_back(client)

    with_broker(tmp_path, story)


def test_the_query_process_ends_with_a_killed_broker(tmp_path: Path) -> None:
    ended: list[int] = []

    async def story(broker: RealBroker, client: "millstream.AsyncClient") -> None:
        assert query_processes(broker) == [], "the process starts at the first query"
        await write_and_read_back(client)
        ended.extend(query_processes(broker))
        assert len(ended) == 1
        attacking = asyncio.create_task(client.admin.query(SLOW_LIKE))
        await client.list_topics()
        broker.kill()
        await code_of(attacking)

    with_broker(tmp_path, story)
    while is_running(ended[0]):
        pass
