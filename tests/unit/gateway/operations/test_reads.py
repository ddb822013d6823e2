"""Tests reads from positions that the caller keeps as texts."""

import asyncio

import pytest

from builders.gateways.web import Ground, with_clusters
from millstream.gateway.operations.reads import (
    ReadLimits,
    TopicReader,
    format_positions,
    parse_positions,
    parse_time_ms,
)
from millstream.gateway.operations.writes import EventColumns, write
from millstream.model.errors import MillstreamError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", "beginning"),
        ("earliest", "beginning"),
        ("12", 12),
        ("0:1,3:40", {0: 1, 3: 40}),
        ("latest", "latest"),
        ("End", "latest"),
    ],
)
def test_a_position_text_is_parsed(text: str, expected: object) -> None:
    assert parse_positions(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "0:1,0:2", "0:", "a", "1.5", "0:99999999999999999999", "²", str(2**63)])
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(MillstreamError, match="offset: "):
        parse_positions(text)


def test_an_offset_in_milliseconds_is_refused_with_a_hint() -> None:
    with pytest.raises(
        MillstreamError, match="offset: 1795092342520 looks like a time in milliseconds; give it as a time"
    ):
        parse_positions("1795092342520")
    assert parse_positions("0:1795092342520") == {0: 1_795_092_342_520}
    assert parse_positions(format_positions({0: 1_795_092_342_520}, alone=True)) == {0: 1_795_092_342_520}


def test_a_position_text_names_partitions_unless_one_was_requested() -> None:
    assert format_positions({1: 4, 0: 12}, alone=False) == "0:12,1:4"
    assert format_positions({0: 12}, alone=False) == "0:12"
    assert format_positions({7: 12}, alone=True) == "12"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1000", 1000), ("1970-01-01T00:00:02Z", 2000), ("1970-01-01T01:00:02+01:00", 2000), ("10s", 90_000)],
)
def test_a_time_is_a_timestamp_or_an_age(text: str, expected: int) -> None:
    assert parse_time_ms(text, 100_000) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "5x", "1969-12-31T00:00:00Z", "99999999999999999999", "200s", "1738324800"]
)
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(MillstreamError, match="when: "):
        parse_time_ms(text, 100_000, "when")


def test_all_partitions_are_read_from_the_callers_position() -> None:
    async def story(ground: Ground) -> None:
        cluster, member = ground.cluster, ground.member
        await member.client.create_topic("orders", partitions=3)
        await write(member, EventColumns("orders", [b"a", b"b", b"c"], partitions=[0, 1, 1]))
        reader = await TopicReader.open(cluster, "orders")
        positions = await reader.begin("beginning")
        found: list[tuple[int, int]] = []
        while len(found) < 3:
            reading = await reader.read(positions, ReadLimits(max_messages=2, wait_s=0))
            assert 1 <= len(reading.messages) <= 2
            found += [(message.partition, message.offset) for message in reading.messages]
            positions = reading.positions
        assert sorted(found) == [(0, 0), (1, 0), (1, 1)]
        assert positions == {0: 1, 1: 2, 2: 0} == await reader.begin("latest")
        assert await reader.begin("1:1") == {0: 0, 1: 1, 2: 0}
        assert (await reader.read(positions, ReadLimits(wait_s=0.1))).messages == []
        with pytest.raises(MillstreamError, match="3 partitions"):
            await reader.begin("1")

    with_clusters(story)


def test_a_read_wakes_on_a_message_in_any_partition() -> None:
    async def story(ground: Ground) -> None:
        cluster, member = ground.cluster, ground.member
        await member.client.create_topic("orders", partitions=2)
        reader = await TopicReader.open(cluster, "orders")
        positions = await reader.begin("latest")
        waiting = asyncio.ensure_future(reader.read(positions, ReadLimits(wait_s=30)))
        await asyncio.sleep(5)
        await write(member, EventColumns("orders", [b"a"], partitions=[1]))
        reading = await waiting
        assert [message.value for message in reading.messages] == [b"a"]
        assert reading.positions == {0: 0, 1: 1}

    with_clusters(story)


def test_a_time_resolves_to_the_first_message_at_or_after_it_or_the_end() -> None:
    async def story(ground: Ground) -> None:
        cluster, member = ground.cluster, ground.member
        await write(member, EventColumns("orders", [b"a", b"b"], timestamps_ms=[1_000, 2_000]))
        reader = await TopicReader.open(cluster, "orders")
        assert await reader.begin_at(1_500) == {0: 1}
        assert await reader.begin_at(9_000) == {0: 2}

    with_clusters(story)


def test_following_a_topic_includes_added_partitions() -> None:
    async def story(ground: Ground) -> None:
        cluster, member = ground.cluster, ground.member
        await member.client.create_topic("orders", partitions=1)
        reader = await TopicReader.open(cluster, "orders")
        positions = await reader.begin("latest")
        await member.client.admin.create_partitions("orders", 2)
        await write(member, EventColumns("orders", [b"a"], partitions=[1]))
        messages, positions = await reader.follow(positions, ReadLimits(wait_s=60))
        assert (messages, positions) == ([], {0: 0}), "the topic is looked up again only after METADATA_REFRESH_S"
        messages, positions = await reader.follow(positions, ReadLimits(wait_s=60))
        assert ([message.value for message in messages], positions) == ([b"a"], {0: 0, 1: 1})

    with_clusters(story)
