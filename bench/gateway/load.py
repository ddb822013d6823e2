"""Generates cheap load for the web API: prepared requests over plain sockets, on an event loop of its own."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from functools import partial
from typing import cast


def post(path: str, body: bytes, kind: str = "application/json") -> bytes:
    """Returns a complete POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def events_body(topic: str, count: int, size: int) -> bytes:
    """Returns the body of a request with `count` events of `size` bytes."""
    value = "x" * size
    return json.dumps({"topic": topic, "events": [{"value": value}] * count}, separators=(",", ":")).encode()


@dataclass
class Tally:
    """Counts of the responses."""

    answered: int = 0
    refused: int = 0
    latencies_s: list[float] = field(default_factory=list)


class Asker(asyncio.Protocol):
    """One connection, which sends the next request as soon as it has a response, until `left` is used up."""

    def __init__(self, request: bytes, tally: Tally, left: list[int], done: "asyncio.Future[None]") -> None:
        self._request = request
        self._tally = tally
        self._left = left
        self._done = done
        self._answer = bytearray()
        self._begun_s = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        if self._left[0] <= 0:
            self._transport.close()
            return
        self._left[0] -= 1
        self._begun_s = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        answer += data
        end = answer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = answer.index(b"content-length: ") + 16
        length = int(answer[at : answer.index(b"\r\n", at)])
        if len(answer) < end + 4 + length:
            return
        self._tally.latencies_s.append(time.perf_counter() - self._begun_s)
        if answer.startswith(b"HTTP/1.1 2"):
            self._tally.answered += 1
        else:
            self._tally.refused += 1
        answer.clear()
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)


async def load(port: int, request: bytes, requests: int, connections: int) -> tuple[Tally, float]:
    """Sends a request `requests` times over `connections` connections; returns the counts and the elapsed time."""
    loop = asyncio.get_running_loop()
    tally, left = Tally(), [requests]
    done: list[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    begun_s = time.perf_counter()
    for each in done:
        await loop.create_connection(partial(Asker, request, tally, left, each), "127.0.0.1", port)
    await asyncio.gather(*done)
    return tally, time.perf_counter() - begun_s


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[float, bytes]:
    """Sends one request; returns when the response arrived, and its body."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    at = head.index(b"content-length: ") + 16
    body = await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
    return time.perf_counter(), body
