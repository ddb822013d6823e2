"""Tests committed offsets in topics that have no replica on the coordinator's broker."""

import pytest

from builders.groups.site import GROUP, GroupSite, run_groups
from millstream.catalog.catalog import Topic
from millstream.groups.commands import CommitOffsets, FetchOffsets, OffsetToCommit
from millstream.groups.responses import OffsetsResponse, PartitionErrors
from millstream.model.ids import BrokerId, LeaderEpoch, Offset

ELSEWHERE = "elsewhere"
OTHER_BROKER = BrokerId(2)


async def topic_elsewhere(site: GroupSite) -> Topic:
    """Creates a topic that broker 2 leads; this broker finds it in the catalog when it starts."""
    topic = await site.catalog.create_topic(ELSEWHERE, 2, {}, [(OTHER_BROKER,)] * 2)
    await site.catalog.set_ready(topic.topic_id)
    await site.restart()
    assert site.partitions.of(ELSEWHERE) == ()
    return topic


async def commit_elsewhere(site: GroupSite, offset: int) -> None:
    command = CommitOffsets(GROUP, -1, "", None, (OffsetToCommit(ELSEWHERE, 1, Offset(offset), LeaderEpoch(0), ""),))
    assert (await site.ask(command, PartitionErrors)).errors == {}


async def committed_elsewhere(site: GroupSite) -> dict[tuple[str, int], int]:
    answer = await site.ask(FetchOffsets(GROUP, None), OffsetsResponse)
    return {place: found.offset for place, found in answer.offsets.items()}


@pytest.mark.parametrize("crashed", [False, True])
def test_offsets_in_a_topic_without_a_local_replica_survive_a_restart(crashed: bool) -> None:
    async def story(site: GroupSite) -> None:
        await topic_elsewhere(site)
        await commit_elsewhere(site, 17)
        for _ in range(2):
            await site.restart(crashed=crashed)
            assert await committed_elsewhere(site) == {(ELSEWHERE, 1): 17}

    run_groups(story)


def test_offsets_in_a_topic_deleted_while_the_broker_was_down_are_removed() -> None:
    async def story(site: GroupSite) -> None:
        topic = await topic_elsewhere(site)
        await commit_elsewhere(site, 17)
        await site.catalog.delete_topic(topic.topic_id)
        await site.restart()
        assert await committed_elsewhere(site) == {}

    run_groups(story)


def test_offsets_are_removed_when_the_cluster_image_deletes_the_topic() -> None:
    async def story(site: GroupSite) -> None:
        topic = await topic_elsewhere(site)
        await commit_elsewhere(site, 17)
        await site.commit(5)
        cluster = site.partitions.cluster
        cluster.publish(cluster.image.topic_deleted(topic.topic_id))
        await site.partitions.create("another")  # The deletion has been processed when this returns.
        assert await committed_elsewhere(site) == {("events", 0): 5}

    run_groups(story)
