"""Tests iterators in the SDK: single calls and the loop, with rebalances, restarts and lost connections."""

import asyncio
from typing import Any

import pytest

from builders.sdk.message_values import values_of
from builders.sdk.simulated_consumers import GROUP, LONG_S, TOPIC, Ground, play, until
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.aio.iterators import AsyncIterators
from millstream.sdk.iterating.engine import IteratorEngine


class Worker:
    """A client of the group with a host of its own, which reads until it is stopped."""

    def __init__(self, ground: Ground, name: str, **options: Any) -> None:
        self.values: list[bytes] = []
        self.iterators: AsyncIterators
        self._ground = ground
        self._name = name
        self._options = options
        self._task: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()

    async def start(self) -> "Worker":
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready))
        await ready
        return self

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        client = await self._ground.machine.connect(self._name)
        async with client.iterators(TOPIC, group=GROUP, client_id=self._name, **self._options) as self.iterators:
            ready.set_result(None)
            while not self._enough.is_set():
                batch = await self.iterators.poll(0.5)
                self.values += values_of(batch.messages) if batch is not None else []
        await client.close()

    @property
    def owned(self) -> int:
        membership = self.iterators.membership
        return len(membership.owned) if membership is not None else 0

    async def stop(self) -> None:
        assert self._task is not None
        self._enough.set()
        await self._task

    async def die(self) -> None:
        """Stop the worker as if its host had been switched off."""
        assert self._task is not None
        self._ground.network.vanish(self._name, silent=True)
        self._task.cancel()
        await asyncio.wait([self._task])


def everything(ground: Ground) -> list[bytes]:
    return sorted(value for values in ground.written.values() for value in values)


def test_a_client_reads_and_commits_with_single_calls() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        iterators = ground.client.iterators(group=GROUP, max_messages=4)
        membership = await iterators.join()
        assert (membership.owned, membership.is_settled) == ((), True)
        iterator = await iterators.get(TOPIC, 0)
        assert (iterator.offset, iterator.max_messages) == (-2, 4)
        assert [each.where.partition for each in await iterators.list()] == [0]
        batch = await iterators.read(iterator)
        assert values_of(batch.messages) == ground.written[0][:4]
        assert batch.following is not None
        ahead = await iterators.read(batch.following)
        assert [message.offset for message in ahead.messages] == [4, 5, 6, 7]
        with pytest.raises(MillstreamError, match="cannot commit 5 messages of a batch of 4"):
            await iterators.commit(batch, 5)
        done = await iterators.commit(batch, 3)
        assert done.position == 3
        assert done.following is not None
        assert (await iterators.read(done.following)).messages[0].offset == 3
        assert await ground.committed() == {0: 3}
        with pytest.raises(MillstreamError) as settled:
            await iterators.commit(ahead)
        assert settled.value.code is ErrorCode.ITERATOR_SETTLED
        assert "1 partitions" in repr(iterators) or "0 partitions" in repr(iterators)
        await iterators.leave()
        with pytest.raises(MillstreamError) as gone:
            await iterators.get(TOPIC, 0)
        assert gone.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


def test_the_loop_reads_everything_once_and_commits_what_was_read() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(30, (0, 1, 2))
        worker = await Worker(ground, "a", max_messages=7).start()
        await until(lambda: len(worker.values) == 90)
        await ground.write(5, (0, 1, 2))
        await until(lambda: len(worker.values) == 105)
        await worker.stop()
        assert sorted(worker.values) == everything(ground)
        assert await ground.committed() == {0: 35, 1: 35, 2: 35}

    play(story, partitions=3)


def test_finish_commits_a_part_of_the_loops_last_batch() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.iterators(TOPIC, group=GROUP) as iterators:
            async with asyncio.timeout(LONG_S):
                async for batch in iterators:
                    assert len(batch.messages) == 10
                    await iterators.finish(6)
                    break
            again = await iterators.poll()
            assert again is not None
            assert [message.offset for message in again.messages] == [6, 7, 8, 9]
        assert await ground.committed() == {0: 10}

    play(story)


def test_a_batch_is_not_committed_when_its_loop_raises() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)

        async def fail() -> None:
            async with ground.client.iterators(TOPIC, group=GROUP) as iterators:
                async for _ in iterators:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await ground.committed() == {}

    play(story)


def test_clients_share_partitions_and_each_message_is_read_once() -> None:
    async def story(ground: Ground) -> None:
        a = await Worker(ground, "a").start()
        await ground.write(20, range(4))
        await until(lambda: len(a.values) == 80)
        b = await Worker(ground, "b").start()
        await until(lambda: (a.owned, b.owned) == (2, 2))
        await ground.write(20, range(4))
        await until(lambda: len(a.values) + len(b.values) >= 160)
        await b.stop()
        await ground.write(20, range(4))
        await until(lambda: len(a.values) + len(b.values) >= 240)
        await a.stop()
        assert sorted(a.values + b.values) == everything(ground)
        assert b.values

    play(story, partitions=4)


def test_uncommitted_messages_of_a_dead_client_go_to_other_clients() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(20, range(2))
        a, b = await Worker(ground, "a").start(), await Worker(ground, "b").start()
        await until(lambda: len(a.values) + len(b.values) >= 40)
        await b.die()
        await ground.write(20, range(2))
        await until(lambda: {*a.values, *b.values} >= set(everything(ground)))
        await a.stop()
        assert await ground.committed() == {0: 40, 1: 40}

    play(story, partitions=2)


def test_iterators_continue_after_a_broker_restart_and_lose_nothing() -> None:
    async def story(ground: Ground) -> None:
        worker = await Worker(ground, "a").start()
        await ground.write(20, range(2))
        await until(lambda: len(worker.values) >= 40)
        await ground.restart()
        await ground.write(20, range(2))
        await until(lambda: set(worker.values) >= set(everything(ground)))
        await worker.stop()
        assert sorted(worker.values) == everything(ground)

    play(story, partitions=2)


def test_iterators_that_expire_at_once_are_requested_with_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(ground: Ground) -> None:
        requested_s: list[float] = []

        async def expired(*_: Any) -> None:
            requested_s.append(asyncio.get_running_loop().time())
            raise MillstreamError(ErrorCode.ITERATOR_EXPIRED)

        await ground.write(3)
        async with ground.client.iterators(TOPIC, group=GROUP) as iterators:
            with monkeypatch.context() as patch:
                patch.setattr(IteratorEngine, "read", expired)
                assert await iterators.poll(60.0) is None
            assert 20 < len(requested_s) < 200
            assert requested_s[2] - requested_s[1] < 0.1 < requested_s[-1] - requested_s[-2]
            batch = await iterators.poll(LONG_S)
            assert batch is not None
            assert values_of(batch.messages) == ground.written[0]

    play(story)


def test_the_loop_joins_automatically_and_requires_topics() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(3)
        async for batch in ground.client.iterators(TOPIC, group=GROUP):
            assert values_of(batch.messages) == ground.written[0]
            break
        with pytest.raises(MillstreamError, match="no topics"):
            await ground.client.iterators(group=GROUP).poll()
        for _ in range(2):
            with pytest.raises(MillstreamError, match="missing"):
                await ground.client.iterators("missing", group=GROUP).poll()

    play(story)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"start": "middle"}, "start"),
        ({"in_flight": -1}, "in_flight"),
        ({"client_id": 5}, "client_id=5"),
        ({"max_messages": 2**40}, "max_messages="),
        ({"max_bytes": "x"}, 'max_bytes: "x" is not a size'),
    ],
    ids=str,
)
def test_invalid_iterator_options_are_refused_by_name(options: dict[str, Any], named: str) -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(MillstreamError, match=named):
            ground.client.iterators(TOPIC, group=GROUP, **options)
        with pytest.raises(TypeError, match="'begin'"):
            ground.client.iterators(TOPIC, group=GROUP, begin=1)  # type: ignore[call-arg]

    play(story)


def test_a_deleted_topic_does_not_delay_iterators_of_others(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        await ground.client.create_topic("others", partitions=1)
        await ground.write(1)
        async with ground.client.iterators([TOPIC, "others"], group=GROUP) as iterators:
            assert await iterators.poll(LONG_S) is not None
            await ground.client.delete_topic(TOPIC)
            for number in range(20):
                await ground.writer.put("others", [b"%d" % number], partition=0)
                async with asyncio.timeout(5):
                    batch = await iterators.poll(LONG_S)
                assert batch is not None
                assert [message.value for message in batch.messages] == [b"%d" % number]
                assert await iterators.poll(3) is None
            assert iterators.health().reason == f"these topics do not exist any more: {TOPIC}"
            assert sum("topic missing" in record.getMessage() for record in caplog.records) == 1

    play(story)
