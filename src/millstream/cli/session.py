"""Opens a client for the duration of one command."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from millstream.model.errors import MillstreamError
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.connection.cluster import ConnectionSettings
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.wire_client import WireClient

T = TypeVar("T")

SEED_SILENCE_S = 5.0
"""Longest wait for one of several bootstrap brokers before the next one is tried."""


class CommandSession:
    """Runs the client's operations one after the other. The command may block between two operations."""

    def __init__(self, runner: asyncio.Runner, client: WireClient) -> None:
        self._runner = runner
        self.client = client

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(operation)


@contextmanager
def connected(bootstrap: str, timeout_s: float) -> Iterator[CommandSession]:
    """Opens a session with a broker that has answered. Raises NoBrokerError if none does.

    A refused connection is reported immediately. A single broker may stay silent for the whole timeout; several brokers
    share it.
    """
    seeds = bootstrap.count(",") + 1
    silence_s = timeout_s if seeds == 1 else min(timeout_s / seeds, SEED_SILENCE_S)
    with asyncio.Runner() as runner:
        client = runner.run(WireClient.connect(bootstrap, connection=ConnectionSettings(connect_timeout_s=silence_s)))
        try:
            yield CommandSession(runner, client)
        finally:
            runner.run(_close(client))


@contextmanager
def producing(session: CommandSession, options: ProducerSettings) -> Iterator[AsyncProducer]:
    """Opens a producer for one command. After a failure or Ctrl-C, it does not wait for batches in flight."""

    async def make() -> AsyncProducer:
        return session.client.producer(options)

    producer = session.run(make())
    try:
        yield producer
    except BaseException:
        with suppress(MillstreamError):  # The exception that is raised again is the one to report.
            session.run(producer.close(0))
        raise
    session.run(producer.close())


async def _close(client: WireClient) -> None:
    client.close()
    await asyncio.sleep(0)  # Lets the transports close before the event loop ends.
