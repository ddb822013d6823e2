"""Tests the lag of groups: committed, never committed, deleted and truncated partitions."""

import asyncio

import pytest

from builders.gateways.web import Ground, with_clusters
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset, GroupLag


async def topic(ground: Ground, name: str, *counts: int) -> None:
    """Create a topic with this number of messages in each partition."""
    client = ground.member.client
    await client.create_topic(name, partitions=len(counts))
    for partition, count in enumerate(counts):
        if count:
            await ground.member.producer.put_many(name, [b"x"] * count, partition=partition)


def test_a_partition_without_a_committed_offset_counts_from_its_beginning() -> None:
    async def story(ground: Ground) -> None:
        groups = ground.member.client.groups
        await topic(ground, "a", 5, 3, 0)
        await groups.commit("g", {TopicPartition("a", 0): 4})
        await ground.member.client.admin.delete_records({TopicPartition("a", 1): 1})
        assert await groups.lag("g") == {
            TopicPartition("a", 0): GroupLag(CommittedOffset(4), 0, 5, 1),
            TopicPartition("a", 1): GroupLag(None, 1, 3, 2),
            TopicPartition("a", 2): GroupLag(None, 0, 0, 0),
        }

    with_clusters(story)


def test_the_lag_of_a_consumer_that_has_committed_nothing_includes_all_messages() -> None:
    async def story(ground: Ground) -> None:
        client = ground.member.client
        await topic(ground, "a", 5, 3)
        async with client.consumer("a", group="g", auto_commit=None) as consumer:
            assert len(await consumer.poll(30)) > 0
            lags = await client.groups.lag("g")
        assert {where.partition: (row.committed, row.lag) for where, row in lags.items()} == {
            0: (None, 5),
            1: (None, 3),
        }

    with_clusters(story)


@pytest.mark.parametrize(("start", "lag"), [("latest", 0), (2, 3), (None, 5)])
def test_the_lag_of_a_new_group_counts_from_the_start_of_its_consumer(start: str | int | None, lag: int) -> None:
    async def story(ground: Ground) -> None:
        client = ground.member.client
        await topic(ground, "a", 5, 5)
        async with client.consumer("a", group="g", start=start, auto_commit="1h") as consumer:
            while len(consumer.assignment) < 2:
                await consumer.poll(0.5)
            await asyncio.sleep(1)
            assert [row.lag for row in (await client.groups.lag("g")).values()] == [lag, lag]

    with_clusters(story)


def test_offsets_before_the_log_start_or_after_its_end_are_not_counted() -> None:
    async def story(ground: Ground) -> None:
        client = ground.member.client
        await topic(ground, "a", 5, 5)
        await client.groups.commit("g", {TopicPartition("a", 0): 1, TopicPartition("a", 1): 9})
        await client.admin.delete_records({TopicPartition("a", 0): 3})
        assert [row.lag for row in (await client.groups.lag("g")).values()] == [2, 0]

    with_clusters(story)


def test_a_deleted_topic_has_no_lag_and_does_not_hide_the_others() -> None:
    async def story(ground: Ground) -> None:
        client = ground.member.client
        await topic(ground, "a", 5)
        await topic(ground, "b", 5)
        async with client.consumer(["a", "b"], group="g", auto_commit=None) as consumer:
            assert len(await consumer.poll(30)) > 0
            await client.delete_topic("b")
            lags = await client.groups.lag("g")
        assert lags[TopicPartition("a", 0)] == GroupLag(None, 0, 5, 5)
        assert lags.get(TopicPartition("b", 0), GroupLag(None, None, None, None)).lag is None

    with_clusters(story)


def test_an_unknown_group_is_refused() -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(MillstreamError) as caught:
            await ground.member.client.groups.lag("nobody")
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    with_clusters(story)
