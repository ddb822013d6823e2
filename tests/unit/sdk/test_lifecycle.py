"""Tests that created objects close before their owner, once, also after failures and cancellation."""

import asyncio
import os

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.lifecycle import Lifecycle


class Ends:
    """Records the order in which objects close; those named in `failing` fail."""

    def __init__(self, *failing: str) -> None:
        self.order: list[str] = []
        self._failing = failing

    def make(self, name: str, maker: Lifecycle | None = None) -> Lifecycle:
        async def end() -> None:
            self.order.append(name)
            if name in self._failing:
                raise ValueError(name)

        return Lifecycle(name, end, maker)


def test_created_objects_close_before_their_owner_newest_first() -> None:
    ends = Ends()
    client = ends.make("client")
    for name in ("producer", "consumer"):
        ends.make(name, client)
    asyncio.run(client.close())
    assert ends.order == ["consumer", "producer", "client"]


def test_each_object_is_closed_once() -> None:
    ends = Ends()
    client = ends.make("client")
    producer = ends.make("producer", client)

    async def close() -> None:
        await producer.close()
        await client.close()
        await client.close()
        await producer.close()

    asyncio.run(close())
    assert ends.order == ["producer", "client"]


def test_a_close_failure_is_raised_after_all_objects_are_closed() -> None:
    ends = Ends("consumer", "producer")
    client = ends.make("client")
    for name in ("producer", "consumer"):
        ends.make(name, client)
    with pytest.raises(ValueError, match="consumer"):
        asyncio.run(client.close())
    assert ends.order == ["consumer", "producer", "client"]


def test_a_closed_object_refuses_use_and_creates_nothing() -> None:
    ends = Ends()
    client = ends.make("client")
    producer = ends.make("producer", client)
    asyncio.run(client.close())
    for lifecycle in (client, producer):
        with pytest.raises(MillstreamError, match=f"this {lifecycle.name} is closed") as refused:
            lifecycle.check()
        assert refused.value.code is ErrorCode.CLIENT_CLOSED
    with pytest.raises(MillstreamError):
        ends.make("consumer", client)


def test_the_text_of_a_lifecycle_lists_the_created_objects() -> None:
    ends = Ends()
    client = ends.make("client")
    assert str(client) == "open"
    for name in ("producer", "consumer", "consumer"):
        ends.make(name, client)
    assert str(client) == "open, with 1 producer and 2 consumers"
    asyncio.run(client.close())
    assert str(client) == "closed"


def test_in_a_forked_child_use_is_refused_and_close_does_nothing() -> None:
    ends = Ends()
    client = ends.make("client")
    producer = ends.make("producer", client)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        found = "nothing was raised"
        try:
            producer.check()
        except MillstreamError as error:
            found = str(error)
        asyncio.run(client.close())
        os.write(writing, f"{found} {ends.order}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert text.startswith("CLIENT_MISUSED: this producer was created before a fork")
    assert text.endswith("[]")
    producer.check()


class Held:
    """A close function that waits until it is released, and records how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.outcome = "not begun"

    async def end(self) -> None:
        self.begun.set()
        try:
            await self.let_go.wait()
            self.outcome = "waited"
        except asyncio.CancelledError:
            self.outcome = "cut short"
            raise


@pytest.mark.parametrize("second", ["maker", "made"])
def test_a_second_close_waits_for_the_first(second: str) -> None:
    async def body() -> None:
        ends, held = Ends(), Held()
        client = ends.make("client")
        producer = Lifecycle("producer", held.end, client)
        first = asyncio.create_task(producer.close())
        await held.begun.wait()
        again = asyncio.create_task((client if second == "maker" else producer).close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not again.done()
        assert ends.order == []
        held.let_go.set()
        await asyncio.gather(first, again)
        assert held.outcome == "waited"
        assert producer.has_ended

    asyncio.run(body())


def test_cancelling_a_close_closes_the_remaining_objects_at_once() -> None:
    async def body() -> None:
        ends, first, second = Ends("failing"), Held(), Held()
        client = ends.make("client")
        Lifecycle("older", second.end, client)
        Lifecycle("newer", first.end, client)
        ends.make("failing", client)
        closing = asyncio.create_task(client.close())
        await first.begun.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert (first.outcome, second.outcome, ends.order) == ("cut short", "cut short", ["failing", "client"])
        assert client.has_ended

    asyncio.run(body())
