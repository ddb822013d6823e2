"""Provides a TCP proxy between clients and broker that can cut connections and swallow answers.

The broker advertises the proxy's address, so that clients never bypass it.
"""

import asyncio
import threading
from types import TracebackType
from typing import Self

_PIECE_BYTES = 64 * 1024


class CutProxy:
    """Listens on `host`:`port` and forwards all bytes to the broker, in a thread of its own."""

    def __init__(self, host: str, port: int, broker_host: str) -> None:
        self._listen = (host, port)
        self._broker = (broker_host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._transports: set[asyncio.WriteTransport] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._swallows_answers = False
        self.cuts = 0
        self.swallowed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def swallow_answers(self) -> None:
        """Forward requests but drop answers until the next cut; `swallowed` counts the dropped pieces."""
        self._loop.call_soon_threadsafe(setattr, self, "_swallows_answers", True)

    def cut(self) -> None:
        """Close every connection; new ones are forwarded normally."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._cut, done)
        assert done.wait(30)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, *self._listen)

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._cut(threading.Event())
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cut(self, done: threading.Event) -> None:
        for transport in list(self._transports):
            transport.abort()
        self._swallows_answers = False
        self.cuts += 1
        done.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection(*self._broker)
        except OSError:
            writer.transport.abort()
            return
        both = {writer.transport, broker_writer.transport}
        self._transports |= both
        pumps = [
            asyncio.ensure_future(self._pump(reader, broker_writer, answers=False)),
            asyncio.ensure_future(self._pump(broker_reader, writer, answers=True)),
        ]
        self._tasks.update(pumps)
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for transport in both:
                transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._tasks.difference_update(pumps)
            self._transports -= both

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while piece := await source.read(_PIECE_BYTES):
                if answers and self._swallows_answers:
                    self.swallowed += 1
                    continue
                sink.write(piece)
                await sink.drain()
        except OSError:
            return
