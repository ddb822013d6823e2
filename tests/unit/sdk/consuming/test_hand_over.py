"""Partitions of a group move to other members right after a join or a clean close, in simulated time."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from builders.loops import for_each
from builders.sdk.simulated_consumers import LONG_S, SETTINGS, Ground, Worker, numbers, play, until
from millstream.broker.dispatch import apis
from millstream.broker.dispatch.group_apis import group_rows
from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_requests import WATCH_MEMBER
from millstream.sdk.connection.connection import BrokerConnection
from millstream.wire.client_connection import ApiRequest

ALL = tuple(range(6))
LIMIT_S = 0.5
HEARTBEAT, WATCH = "ConsumerGroupHeartbeat", "WatchMember"
RARE_HEARTBEATS_S = 40
RARE_HEARTBEATS = SETTINGS.__class__(
    data=SETTINGS.data, host=SETTINGS.host, consumer_heartbeat_interval_ms=1000 * RARE_HEARTBEATS_S
)
"""So long an interval that every heartbeat that a test counts has another reason."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests of all clients, by API."""
    counts: Counter[str] = Counter()
    post = BrokerConnection.post

    def counted(connection: BrokerConnection, request: ApiRequest[Any], timeout_s: float) -> Any:
        counts[request.api.name] += 1
        return post(connection, request, timeout_s)

    monkeypatch.setattr(BrokerConnection, "post", counted)
    return counts


def play_six(story: Callable[[Ground], Awaitable[None]], **options: Any) -> None:
    play(story, partitions=len(ALL), **options)


def shared(workers: Sequence[Worker]) -> bool:
    """True if the workers have all partitions, each an equal part."""
    owned = [worker.partitions for worker in workers]
    return sorted(number for each in owned for number in each) == list(ALL) and len({len(each) for each in owned}) == 1


async def shared_within(limit_s: float, workers: Sequence[Worker]) -> None:
    async with asyncio.timeout(limit_s):
        while not shared(workers):  # noqa: ASYNC110  # what is watched sets no event, and simulated time costs nothing
            await asyncio.sleep(0.001)


async def quiet(ground: Ground, count: int, **options: Any) -> list[Worker]:
    """So many members that have shared the partitions for a while."""
    workers = [await Worker(ground, f"worker{number}", **options).start() for number in range(count)]
    await until(lambda: shared(workers))
    await asyncio.sleep(2)
    return workers


async def stop(workers: Sequence[Worker]) -> None:
    for worker in workers:
        await worker.stop()


@for_each("pause_s", [0.0, 0.1, 1.3, 4.9, 17.0])
def test_partitions_are_reassigned_within_half_a_second_of_a_join_or_close(pause_s: float) -> None:
    """Default settings, and pauses that meet the heartbeat and assignment intervals at different phases."""

    async def story(ground: Ground) -> None:
        workers: list[Worker] = []
        for number in range(3):
            workers.append(await Worker(ground, f"worker{number}").start())
            await shared_within(LIMIT_S, workers)
            await asyncio.sleep(pause_s)
        while len(workers) > 1:
            await workers.pop(0).stop()
            if len(ALL) % len(workers) == 0:
                await shared_within(LIMIT_S, workers)
            await asyncio.sleep(pause_s)
        await stop(workers)

    play_six(story)


def test_a_close_costs_each_gaining_member_two_heartbeats(sent: Counter[str]) -> None:
    """One that brings the partitions, and one that confirms them."""

    async def story(ground: Ground) -> None:
        first, *others = await quiet(ground, 3)
        sent.clear()
        await first.stop()
        await shared_within(LIMIT_S, others)
        await asyncio.sleep(1)
        leave = 1
        assert sent[HEARTBEAT] == leave + 2 * len(others)
        assert sent[WATCH] == len(others)
        await stop(others)

    play_six(story, settings=RARE_HEARTBEATS)


def test_a_join_costs_the_old_owner_two_heartbeats(sent: Counter[str]) -> None:
    """One that brings the request to give up partitions, and one that confirms it. The new member joins, gets its
    partitions, and confirms them."""

    async def story(ground: Ground) -> None:
        workers = await quiet(ground, 1)
        sent.clear()
        workers.append(await Worker(ground, "late").start())
        await shared_within(LIMIT_S, workers)
        await asyncio.sleep(1)
        old_owner, new_owner = 2, 3
        assert sent[HEARTBEAT] == old_owner + new_owner
        assert sent[WATCH] == 3
        await stop(workers)

    play_six(story, settings=RARE_HEARTBEATS)


def test_a_commit_in_on_revoked_neither_delays_nor_loses_the_hand_over() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=ALL)

        async def revoked(_places: Sequence[TopicPartition]) -> None:
            await first.consumer.commit()

        first = await Worker(ground, "first", auto_commit=None, on_revoked=revoked).start()
        await until(lambda: len(first.values) == 60)
        await asyncio.sleep(2)
        second = await Worker(ground, "second").start()
        await shared_within(LIMIT_S, [first, second])
        await ground.write(partitions=ALL)
        await until(lambda: len(first.values) + len(second.values) == 120)
        assert numbers(first.values + second.values) == list(range(120))
        await stop([first, second])

    play_six(story)


def test_an_idle_member_opens_no_watch_and_sends_only_regular_heartbeats(sent: Counter[str]) -> None:
    async def story(ground: Ground) -> None:
        workers = await quiet(ground, 2)
        sent.clear()
        await asyncio.sleep(100)
        assert sent[WATCH] == 0
        assert 0 < sent[HEARTBEAT] <= len(workers) * 100 / 5
        await stop(workers)

    play_six(story)


def test_a_member_without_partitions_sends_no_additional_heartbeats(sent: Counter[str]) -> None:
    async def story(ground: Ground) -> None:
        workers = [await Worker(ground, f"worker{number}").start() for number in range(7)]
        await until(lambda: len({place for each in workers for place in each.partitions}) == len(ALL))
        await asyncio.sleep(2)
        sent.clear()
        await asyncio.sleep(RARE_HEARTBEATS_S / 4)
        assert sent[HEARTBEAT] <= len(workers)
        (spare,) = [worker for worker in workers if not worker.partitions]
        loser = next(worker for worker in workers if worker is not spare)
        workers.remove(loser)
        await loser.stop()
        await shared_within(LIMIT_S, workers)
        await stop(workers)

    play_six(story, settings=RARE_HEARTBEATS)


def test_a_broker_without_watches_hands_over_with_heartbeats(
    sent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows_of_an_older_broker(*arguments: Any) -> list[Any]:
        return [row for row in group_rows(*arguments) if row.key != WATCH_MEMBER.key]

    monkeypatch.setattr(apis, "group_rows", rows_of_an_older_broker)

    async def story(ground: Ground) -> None:
        first, *others = await quiet(ground, 3)
        await first.stop()
        await shared_within(6, others)
        assert sent[WATCH] == 0
        await stop(others)

    play_six(story)


@pytest.mark.parametrize("trouble", ["restart", "cut"])
def test_member_watches_work_again_after_a_restart_or_cut_connections(trouble: str) -> None:
    async def story(ground: Ground) -> None:
        first, *others = await quiet(ground, 3)
        if trouble == "restart":
            await ground.restart()
        else:
            for worker in others:
                ground.network.block(worker.name)
            await asyncio.sleep(15)
            for worker in others:
                ground.network.unblock(worker.name)
        await asyncio.sleep(15)
        assert shared([first, *others])
        await first.stop()
        await shared_within(LIMIT_S, others)
        await stop(others)

    play_six(story)


def test_a_member_removed_by_a_network_outage_rejoins_and_hands_over_again() -> None:
    async def story(ground: Ground) -> None:
        workers = await quiet(ground, 2)
        ground.network.block(workers[0].name)
        await asyncio.sleep(LONG_S)
        assert sorted(workers[1].partitions) == list(ALL)
        ground.network.unblock(workers[0].name)
        await until(lambda: shared(workers))
        await asyncio.sleep(2)
        await workers[0].stop()
        await shared_within(LIMIT_S, workers[1:])
        await stop(workers[1:])

    play_six(story)
