"""Tests administration of topics and groups against a whole broker in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from builders.sdk.simulated_consumers import SETTINGS
from builders.sdk.writing_client import WritingClient
from builders.simulated_node import SimulatedMachine, simulate
from millstream.catalog.memory import MemoryCatalog
from millstream.catalog.statement import QueryResult
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin import admin_requests
from millstream.sdk.admin.admin import TO_THE_END
from millstream.sdk.admin.admin_results import ResourceKind, TopicPage
from millstream.sdk.admin.group_results import CommittedOffset
from millstream.sdk.requests import LATEST
from millstream.wire.client_connection import Api


def play(story: Callable[[WritingClient], Awaitable[None]]) -> None:
    async def whole(machine: SimulatedMachine) -> None:
        node = await machine.start()
        async with await machine.client() as client:
            await story(client)
        await node.stop()

    simulate(SETTINGS, whole)


async def code_of(operation: Awaitable[object]) -> ErrorCode:
    with pytest.raises(MillstreamError) as caught:
        await operation
    return caught.value.code


async def own_settings(client: WritingClient, topic: str) -> dict[str, str | None]:
    rows = await client.admin.describe_settings(ResourceKind.TOPIC, topic)
    return {row.name: row.value for row in rows if row.is_own}


def test_settings_are_set_and_unset_together() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t", settings={"segment.ms": "5000"})
        await client.admin.alter_settings(
            ResourceKind.TOPIC, "t", {"retention.ms": "1000"}, unset=["segment.ms"], timeout_s=5
        )
        assert await own_settings(client, "t") == {"retention.ms": "1000"}

    play(story)


def test_settings_include_type_source_and_documentation() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t", settings={"retention.ms": "5000"})
        (row,) = await client.admin.describe_settings(ResourceKind.TOPIC, "t", ["retention.ms"])
        assert (row.name, row.value, row.type, row.source, row.is_own) == (
            "retention.ms",
            "5000",
            "long",
            "topic",
            True,
        )
        assert row.documentation

    play(story)


def test_a_refused_setting_leaves_all_settings_unchanged() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t")
        chosen = {"retention.ms": "1000", "max.message.bytes": "many"}
        refused = client.admin.alter_settings(ResourceKind.TOPIC, "t", chosen)
        assert await code_of(refused) is ErrorCode.INVALID_CONFIG
        assert await own_settings(client, "t") == {}

    play(story)


def test_validate_only_changes_no_settings() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t")
        await client.admin.alter_settings(ResourceKind.TOPIC, "t", {"retention.ms": "1000"}, validate_only=True)
        assert await own_settings(client, "t") == {}

    play(story)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (ResourceKind.TOPIC, "nobody-has-this", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ResourceKind.BROKER, "77", ErrorCode.RESOURCE_NOT_FOUND),
        (ResourceKind.BROKER, "first", ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_of_an_unknown_resource_are_refused(kind: ResourceKind, name: str, code: ErrorCode) -> None:
    async def story(client: WritingClient) -> None:
        assert await code_of(client.admin.describe_settings(kind, name)) is code

    play(story)


def test_added_partitions_are_usable_at_once_by_the_same_client() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t", partitions=2)
        await client.put("t", [b"x"], partition=0)
        await client.admin.create_partitions("t", 5)
        await client.put("t", [b"x"], partition=4)
        assert await code_of(client.admin.create_partitions("t", 5)) is ErrorCode.INVALID_PARTITIONS
        assert await code_of(client.admin.create_partitions("u", 5)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


def test_messages_are_deleted_up_to_an_offset_or_to_the_end() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t", partitions=2)
        for partition in range(2):
            await client.put("t", [b"x"] * 10, partition=partition)
        places = {TopicPartition("t", 0): 4, TopicPartition("t", 1): TO_THE_END}
        assert list((await client.admin.delete_records(places)).values()) == [4, 10]
        beyond = client.admin.delete_records({TopicPartition("t", 0): 11})
        assert await code_of(beyond) is ErrorCode.OFFSET_OUT_OF_RANGE

    play(story)


def test_epoch_ends_returns_the_end_of_known_leader_epochs() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t")
        await client.put("t", [b"x"] * 10)
        where = TopicPartition("t", 0)
        now = (await client.list_offsets({where: LATEST}))[where]
        assert now.leader_epoch >= 0
        assert await client.admin.epoch_ends({where: now.leader_epoch}) == {where: 10}
        assert await client.admin.epoch_ends({where: now.leader_epoch + 1}) == {where: -1}
        unknown = client.admin.epoch_ends({TopicPartition("u", 0): 0})
        assert await code_of(unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


def test_log_dirs_report_sizes_by_directory_and_partition() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t", partitions=2)
        await client.put("t", [b"x" * 1000], partition=1)
        (directory,) = await client.admin.describe_log_dirs({"t": [0, 1]})
        assert directory.partition_bytes[TopicPartition("t", 0)] == 0
        assert directory.partition_bytes[TopicPartition("t", 1)] > 1000
        everything = (await client.admin.describe_log_dirs())[0].partition_bytes
        assert everything.keys() == directory.partition_bytes.keys()

    play(story)


def test_describe_cluster_matches_the_metadata() -> None:
    async def story(client: WritingClient) -> None:
        description = await client.admin.describe_cluster()
        view = await client.metadata([])
        assert description.cluster_id == view.cluster_id
        assert [broker.node_id for broker in description.brokers] == list(view.brokers)
        assert description.controller_id in view.brokers

    play(story)


async def pages(client: WritingClient, limit: int) -> list[TopicPage]:
    found = [await client.admin.list_topics(limit=limit)]
    while found[-1].after is not None:
        found.append(await client.admin.list_topics(limit=limit, after=found[-1].after))
    return found


LISTED = ["a", "a-", "a.b", "a0", "b"]


@pytest.mark.parametrize("in_parts", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_topics_are_listed_page_by_page_each_once(limit: int, in_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.sdk.admin.admin._LISTED_PARTITIONS", 2)
    if not in_parts:
        monkeypatch.setattr(admin_requests, "DESCRIBE_TOPIC_PARTITIONS", Api(30_000, "DescribeTopicPartitions", 0, 0))

    async def story(client: WritingClient) -> None:
        for name in LISTED:
            await client.create_topic(name, partitions=3)
        found = await pages(client, limit)
        assert [view.name for page in found for view in page.topics] == LISTED
        assert all(len(view.partitions) == 3 for page in found for view in page.topics)
        assert all(len(page.topics) == limit for page in found[:-1])

    play(story)


def test_a_commit_creates_a_group_whose_offsets_can_be_deleted() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t", partitions=2)
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        await client.groups.commit("g", {first: CommittedOffset(3, metadata="half way"), second: CommittedOffset(5)})
        assert (await client.groups.offsets("g"))[first] == CommittedOffset(3, -1, "half way")
        assert (await client.groups.offsets("g", [second])).keys() == {second}
        assert [row.group_id for row in await client.groups.list()] == ["g"]
        description = await client.groups.describe("g")
        assert (description.state, description.members) == ("Empty", ())
        await client.groups.delete_offsets("g", [first])
        assert (await client.groups.offsets("g")).keys() == {second}
        await client.groups.delete("g")
        assert await client.groups.list() == []

    play(story)


def test_an_unknown_group_has_no_offsets_and_cannot_be_described() -> None:
    async def story(client: WritingClient) -> None:
        assert await client.groups.offsets("nobody") == {}
        with pytest.raises(MillstreamError, match=r"^GROUP_ID_NOT_FOUND: group 'nobody' does not exist$"):
            await client.groups.describe("nobody")
        assert await code_of(client.groups.delete("nobody")) is ErrorCode.GROUP_ID_NOT_FOUND

    play(story)


def test_a_commit_for_an_unknown_partition_is_refused() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t")
        commit = client.groups.commit("g", {TopicPartition("t", 9): CommittedOffset(1)}, timeout_s=5)
        assert await code_of(commit) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


def test_groups_can_be_listed_by_state_and_kind() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t")
        await client.groups.commit("idle", {TopicPartition("t", 0): CommittedOffset(0)})
        async with client.consumer("t", group="busy"):
            assert [row.group_id for row in await client.groups.list(states=["Empty"])] == ["idle"]
            assert [row.group_id for row in await client.groups.list(kinds=["consumer"])] == ["busy"]

    play(story)


def test_a_commit_for_a_group_with_active_members_names_them() -> None:
    async def story(client: WritingClient) -> None:
        await client.create_topic("t")
        async with client.consumer("t", group="g") as consumer:
            await consumer.poll(1)
            with pytest.raises(MillstreamError, match=r"1 active member: .*; stop its consumers, or wait") as caught:
                await client.groups.commit("g", {TopicPartition("t", 0): CommittedOffset(0)})
            assert caught.value.code is ErrorCode.NON_EMPTY_GROUP

    play(story)


def test_a_restarted_coordinator_is_found_again() -> None:
    async def whole(machine: SimulatedMachine) -> None:
        node = await machine.start()
        async with await machine.client() as client:
            await client.create_topic("t")
            await client.groups.commit("g", {TopicPartition("t", 0): CommittedOffset(7)})
            await node.stop()
            node = await machine.start()
            assert (await client.groups.offsets("g"))[TopicPartition("t", 0)].offset == 7
        await node.stop()

    simulate(SETTINGS, whole)


@pytest.mark.parametrize("in_parts", [True, False])
def test_internal_topics_are_listed_only_on_request(in_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_parts:
        monkeypatch.setattr(admin_requests, "DESCRIBE_TOPIC_PARTITIONS", Api(30_000, "DescribeTopicPartitions", 0, 0))

    async def story(client: WritingClient) -> None:
        await client.create_topic("a")
        await client.groups.commit("g", {TopicPartition("a", 0): CommittedOffset(0)})
        for limit in (1, 100):
            page = await client.admin.list_topics(limit=limit)
            assert ([view.name for view in page.topics], page.after) == (["a"], None)
        assert [view.name for view in await client.list_topics()] == ["a"]
        everything = ["__consumer_offsets", "a"]
        assert [view.name for view in (await client.admin.list_topics(internal=True)).topics] == everything
        assert [view.name for view in await client.list_topics(internal=True)] == everything

    play(story)


def test_query_delays_no_other_request_and_stops_when_its_call_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(catalog: MemoryCatalog, sql: str, *, rows_max: int, timeout_ms: int) -> QueryResult:
        begun.set()
        try:
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            ended.set()

    monkeypatch.setattr(MemoryCatalog, "query", endless)

    async def story(client: WritingClient) -> None:
        querying = asyncio.create_task(client.admin.query("SELECT 1"))
        await begun.wait()
        await client.create_topic("t")
        assert [view.name for view in (await client.admin.list_topics()).topics] == ["t"]
        assert not querying.done()
        querying.cancel()
        await ended.wait()

    play(story)
