"""Tests the sizes of topics that are created and deleted meanwhile, against a scripted broker."""

import pytest

from builders.sdk.scripted_broker import Refuse, Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.topic_sizes import OffsetRange, extents, topic_sizes


def test_messages_are_counted_by_the_offset_range_of_each_topic() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.cluster.topic("a", 2)
        scene.cluster.topic("b")[0].start = 5
        await client.put("a", [b"x", b"y"], partition=1)
        await client.put("b", [b"z"])
        rows = await topic_sizes(client, await client.list_topics(), 30.0)
        assert [(row.view.name, row.messages, row.size_bytes) for row in rows] == [("a", 2, None), ("b", 1, None)]

    play(body)


@pytest.mark.parametrize("gone", [["b"], ["a", "c"], ["a", "b", "c"]])
def test_a_topic_deleted_while_counting_does_not_hide_the_others(gone: list[str]) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        for name in ("a", "b", "c"):
            await client.put(name, [b"x"])
        views = await client.list_topics()
        scene.cluster.auto_create = False
        for name in gone:
            del scene.cluster.topics[name]
        rows = await topic_sizes(client, views, 30.0)
        assert [row.view.name for row in rows] == [name for name in ("a", "b", "c") if name not in gone]
        assert all(row.messages == 1 for row in rows)

    play(body)


def test_other_failures_while_counting_are_raised() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("a", [b"x"])
        scene.cluster.faults[2].extend([Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)] * 5)
        with pytest.raises(MillstreamError) as caught:
            await extents(client, await client.list_topics(), 30.0)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    play(body)


def test_counting_no_topics_sends_no_request() -> None:
    async def body(scene: Scene) -> None:
        assert await extents(scene.client(), [], 30.0) == {}
        assert scene.cluster.seen == []

    play(body)


def test_an_offset_range_counts_its_offsets() -> None:
    assert OffsetRange(5, 9).messages == 4
    assert TopicPartition("t", 0) < TopicPartition("t", 1)
