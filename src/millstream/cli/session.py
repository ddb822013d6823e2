"""A client for the time of one command."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from millstream.model.errors import MillstreamError
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.connection.cluster import ConnectionSettings
from millstream.sdk.producing.options import ProducerOptions
from millstream.sdk.wire_client import WireClient

T = TypeVar("T")

SEED_SILENCE_S = 5.0
"""How long one of several brokers may be silent before the next is asked."""


class CommandSession:
    """Runs the client's operations one after the other; in between, the command may block as it likes."""

    def __init__(self, runner: asyncio.Runner, client: WireClient) -> None:
        self._runner = runner
        self.client = client

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(operation)


@contextmanager
def connected(bootstrap: str, timeout_s: float) -> Iterator[CommandSession]:
    """A session with a broker that has answered; UnreachableError when none does.

    A refusal is told at once. A broker that is silent is waited for, the only one as long as the command may take;
    several share that time.
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
def producing(session: CommandSession, options: ProducerOptions) -> Iterator[AsyncProducer]:
    """A producer for the time of one command. After a failure, or Ctrl-C, what is on its way is not waited for."""

    async def make() -> AsyncProducer:
        return session.client.producer(options)

    producer = session.run(make())
    try:
        yield producer
    except BaseException:
        with suppress(MillstreamError):  # Whoever fails has told what is known of it.
            session.run(producer.close(0))
        raise
    session.run(producer.close())


async def _close(client: WireClient) -> None:
    client.close()
    await asyncio.sleep(0)  # Lets the transports end before their loop does.
