"""A client for the time of one command."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.sdk.client import AsyncClient

T = TypeVar("T")


class Session:
    """Runs the client's operations one after the other; in between, the command may block as it likes."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient) -> None:
        self._runner = runner
        self.client = client

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(operation)


@contextmanager
def connected(bootstrap: str) -> Iterator[Session]:
    """A session with a broker that has answered; UnreachableError when none does."""
    with asyncio.Runner() as runner:
        client = runner.run(AsyncClient.connect(bootstrap))
        try:
            yield Session(runner, client)
        finally:
            runner.run(_close(client))


async def _close(client: AsyncClient) -> None:
    client.close()
    await asyncio.sleep(0)  # Lets the transports end before their loop does.
