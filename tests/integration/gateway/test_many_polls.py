"""Tests ten thousand waiting polls: memory is bounded, a message answers all, and a shutdown ends all early."""

import asyncio
import json
import resource
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import uvloop

from builders.gateways.processes import WAIT_S, RealGateway, ask, gateway, put
from millstream.testing.real_broker import RealBroker

POLLS = 10_000
TOPICS = [f"topic-{number}" for number in range(10)]
AT_ONCE = 200
POLL_BYTES_MAX = 64 * 1024
"""Memory limit of one waiting poll: connection, request, task and queue entry."""


@pytest.fixture
def files() -> Iterator[None]:
    """Raise the limit of open files for this process and its children."""
    least = POLLS + 1_000
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(least, before[0])
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, before[1])))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0], max(wanted, before[1])))


class Poll(asyncio.Protocol):
    """One connection that polls repeatedly.

    An empty answer, possible on a slow machine, is polled again unless it is the `last` one.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._received = b""
        self._offset = 0
        self._is_last = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, offset: int, *, last: bool = False) -> None:
        self.answered = asyncio.get_running_loop().create_future()
        self._offset, self._is_last = offset, last
        self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        target = f"/events?topic={self.topic}&partition=0&offset={self._offset}&wait=60"
        self._transport.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        if body.endswith(b"}") and len(body) == int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            self._received = b""
            assert head.startswith(b"HTTP/1.1 200 "), head + body
            if self._is_last or b'"events":[]' not in body:
                self.answered.set_result(body)
            else:
                self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_exception(exc or ConnectionError("it ended without an answer"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def resident_bytes(running: RealGateway) -> int:
    return int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def until_waiting(running: RealGateway, count: int) -> None:
    """Wait until `count` requests are in progress, besides the one that reads the metrics."""
    while True:
        text = (await asyncio.to_thread(ask, f"{running.url}/metrics")).body.decode()
        if int(text.partition("\nmillstream_gateway_requests_under_way ")[2].split("\n")[0]) > count:
            return
        await asyncio.sleep(0.05)


async def connected(running: RealGateway) -> list[Poll]:
    loop = asyncio.get_running_loop()
    found: list[Poll] = []
    for first in range(0, POLLS, AT_ONCE):
        made = [
            loop.create_connection(partial(Poll, TOPICS[number % len(TOPICS)]), "127.0.0.1", running.http_port)
            for number in range(first, first + AT_ONCE)
        ]
        found += [poll for _, poll in await asyncio.gather(*made)]
    return found


async def answers(polls: list[Poll]) -> list[list[str]]:
    """The values that each poll received."""
    async with asyncio.timeout(4 * WAIT_S):
        bodies = await asyncio.gather(*(poll.answered for poll in polls))
    return [[event["value"] for event in json.loads(body)["events"]] for body in bodies]


async def story(running: RealGateway) -> None:
    before_bytes = resident_bytes(running)
    polls = await connected(running)
    try:
        for poll in polls:
            poll.ask(1)
        await until_waiting(running, POLLS)
        assert (resident_bytes(running) - before_bytes) / POLLS < POLL_BYTES_MAX
        for topic in TOPICS:
            assert (await asyncio.to_thread(put, running.url, topic, f"second of {topic}")).status == 200
        assert await answers(polls) == [[f"second of {poll.topic}"] for poll in polls]
        for poll in polls:
            poll.ask(2, last=True)
        await until_waiting(running, POLLS)
        running.process.send_signal(signal.SIGTERM)
        assert await answers(polls) == [[]] * POLLS
    finally:
        for poll in polls:
            poll.close()


@pytest.mark.usefixtures("files")
def test_ten_thousand_polls_use_bounded_memory_and_are_all_answered(tmp_path: Path) -> None:
    with (
        RealBroker(tmp_path / "data", flush="os") as broker,
        gateway(broker.bootstrap, "--drain-ms", "60s") as running,
    ):
        for topic in TOPICS:
            assert put(running.url, topic, "first").status == 200
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(story(running))
        assert running.process.wait(WAIT_S) == 0
