"""Tests rights on the topics and groups in a request: only the denied ones are refused, and they do not change."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from builders.authorization.named_requests import NEW_TOPIC, named_requests
from builders.authorization.responses import error_codes, errors_of
from builders.authorization.rights import Rights, all_rights, no_rights
from builders.batches import batch
from builders.requests import RawPeer
from builders.served import ServedBroker, produce, serve
from builders.wire_messages import served_rows
from millstream.catalog.catalog import Topic
from millstream.groups.iterators.iterator import Iterator
from millstream.model.errors import ErrorCode
from millstream.model.ids import Offset, TopicId, TopicIdBytes
from millstream.model.names import NO_TOPIC_ID
from millstream.model.rights import Right
from millstream.wire.schema_readers import Fields

ROWS = served_rows()
GROUP = "g"
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED.number
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED.number
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED.number

WITHOUT_RESOURCES = {
    "ApiVersions": "requires no right",
    "Info": "requires no right",
    "Role": "requires no right",
    "Unsubscribe": "requires no right",
    "InitProducerId": "requires the right to write to any topic at all",
    "DescribeCluster": "tells every principal the brokers, and which operations it may do",
    "ListGroups": "leaves out the groups that the principal may not see",
    "SubscriptionCommit": "names a subscription, whose topics and group were checked",
}
OF_SEVERAL = {"DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"}
"""The APIs whose requests name resources of several kinds."""

TOPICS_OF_GROUPS = (
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "ConsumerGroupHeartbeat",
    "GetIterator",
    "CommitIterator",
    "DeliverIterator",
    "Subscribe",
)
NAMING_TOPICS = (
    "Produce",
    "Puts",
    "Fetch",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "DeleteTopics",
    "DeleteRecords",
    "CreatePartitions",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "DescribeProducers",
    "DescribeTopicPartitions",
    "Subscribe",
)


async def prepared(broker: ServedBroker, name: str = "events") -> Topic:
    """Create a topic with a batch and a group with a committed offset."""
    topic = await broker.topic(name)
    peer = await broker.peer()
    await produce(peer, name, batch())
    await peer.ask("FindCoordinator", 0, {"key": GROUP})
    committed = {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    answer = await peer.ask("OffsetCommit", 8, {"group_id": GROUP, "topics": [committed]})
    assert not any(error_codes(answer))
    return topic


def iterator_of(broker: ServedBroker, topic: Topic) -> bytes:
    iterator = Iterator(GROUP, "c", topic.name, TopicIdBytes(topic.topic_id.bytes), 0, Offset(0), 10, 1, 1, 1, 1)
    return broker.iterators.signer.sign(iterator)


async def state(broker: ServedBroker) -> list[Fields]:
    """Return everything that denied requests must not change."""
    peer = await broker.peer()
    names = list(broker.partitions.image.names)
    times = [
        {"name": name, "partitions": [{"partition_index": 0, "timestamp": time} for time in (-1, -2)]}
        for name in names
        if not name.startswith("_")
    ]
    resources = [{"resource_type": 2, "resource_name": name} for name in names]
    return [
        await peer.ask("Metadata", 9, {"topics": None}),
        await peer.ask("ListOffsets", 5, {"topics": times}),
        await peer.ask("DescribeConfigs", 4, {"resources": resources}),
        await peer.ask("OffsetFetch", 7, {"group_id": GROUP, "topics": None}),
        await peer.ask("ListGroups", 5),
        await peer.ask("DescribeGroups", 5, {"groups": [GROUP]}),
    ]


def expected(api: str) -> set[int]:
    if api in OF_SEVERAL:
        return {TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED}
    return {GROUP_DENIED if api == "Subscribe" else ROWS[api].right.refusal.number}


@pytest.mark.parametrize("api", sorted(ROWS.keys() - WITHOUT_RESOURCES.keys()))
def test_an_api_refuses_denied_resources_in_its_format_and_changes_nothing(api: str, tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        topic = await prepared(broker)
        request = named_requests(topic, GROUP, iterator_of(broker, topic))[api]
        before = await state(broker)
        rights.rule = no_rights
        peer = await broker.peer()
        for version in range(ROWS[api].first, ROWS[api].last + 1):
            answer = await peer.ask(api, version, request)
            assert set(error_codes(answer)) == expected(api), f"version {version}"
        rights.rule = all_rights
        assert await state(broker) == before

    serve(tmp_path, story, authorizer=rights)


@pytest.mark.parametrize("api", TOPICS_OF_GROUPS)
def test_a_denied_topic_is_refused_to_the_member_of_an_allowed_group(api: str, tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        topic = await prepared(broker)
        request = named_requests(topic, GROUP, iterator_of(broker, topic))[api]
        before = await state(broker)
        rights.rule = lambda right, resource: resource != topic.name
        peer = await broker.peer()
        for version in range(ROWS[api].first, ROWS[api].last + 1):
            answer = await peer.ask(api, version, request)
            assert set(error_codes(answer)) == {TOPIC_DENIED}, f"version {version}"
        rights.rule = all_rights
        assert await state(broker) == before

    serve(tmp_path, story, authorizer=rights)


def both(one: Fields, other: Fields) -> Fields:
    """Combine two requests into one that names the resources of both."""
    return {
        name: value + [each for each in other[name] if each not in value] if isinstance(value, list) else value
        for name, value in one.items()
    }


@pytest.mark.parametrize(
    ("api", "version"),
    sorted({(api, version) for api in NAMING_TOPICS for version in (ROWS[api].first, ROWS[api].last)}),
)
def test_only_the_denied_topic_of_a_request_is_refused(api: str, version: int, tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        allowed, denied = await prepared(broker, "allowed"), await prepared(broker, "denied")
        request = both(named_requests(allowed, GROUP)[api], named_requests(denied, GROUP)[api])
        rights.rule = lambda right, resource: resource != "denied"
        answer = await (await broker.peer()).ask(api, version, request)
        assert errors_of(answer, denied) == {TOPIC_DENIED}
        assert errors_of(answer, allowed) == {0}
        (log,) = broker.partitions.of("denied")
        assert (log.high_watermark, log.log.start_offset) == (1, 0)

    serve(tmp_path, story, authorizer=rights)


def test_a_denied_topic_is_not_created(tmp_path: Path) -> None:
    rights = Rights(lambda right, resource: resource != NEW_TOPIC)

    async def story(broker: ServedBroker) -> None:
        request = {
            "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in (NEW_TOPIC, "a")]
        }
        answer = await (await broker.peer()).ask("CreateTopics", 5, request)
        assert [row["error_code"] for row in answer["topics"]] == [TOPIC_DENIED, 0]
        assert broker.partitions.image.names == ("a",)

    serve(tmp_path, story, authorizer=rights)


async def metadata(peer: RawPeer, version: int, topics: list[dict[str, Any]] | None, **fields: Any) -> list[Fields]:
    rows: list[Fields] = (await peer.ask("Metadata", version, {"topics": topics, **fields}))["topics"]
    return rows


def test_listings_leave_out_what_the_principal_may_not_see(tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        await prepared(broker, "allowed")
        denied = await prepared(broker, "denied")
        rights.rule = lambda right, resource: resource not in ("denied", "__consumer_offsets")
        peer = await broker.peer()
        assert [row["name"] for row in await metadata(peer, 12, None)] == ["allowed"]
        pages = await peer.ask("DescribeTopicPartitions", 0, {"topics": []})
        assert [row["name"] for row in pages["topics"]] == ["allowed"]
        offsets = await peer.ask("OffsetFetch", 7, {"group_id": GROUP, "topics": None})
        assert [row["name"] for row in offsets["topics"]] == ["allowed"]
        assert [row["group_id"] for row in (await peer.ask("ListGroups", 5))["groups"]] == [GROUP]
        rights.rule = lambda right, resource: resource != GROUP
        assert (await peer.ask("ListGroups", 5))["groups"] == []
        by_id = {"name": None, "topic_id": denied.topic_id}
        rights.rule = lambda right, resource: resource != "denied"
        (row,) = await metadata(peer, 12, [by_id])
        assert (row["error_code"], row["name"], row["topic_id"]) == (TOPIC_DENIED, None, denied.topic_id)
        (row,) = await metadata(peer, 12, [{"name": None, "topic_id": TopicId(UUID(int=7))}])
        assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID.number

    serve(tmp_path, story, authorizer=rights)


def test_metadata_creates_a_missing_topic_only_with_the_right_to_create_it(tmp_path: Path) -> None:
    rights = Rights(lambda right, resource: right is Right.TOPICS_READ)

    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        wanted = [{"name": NEW_TOPIC, "topic_id": NO_TOPIC_ID}]
        (row,) = await metadata(peer, 9, wanted, allow_auto_topic_creation=True)
        assert row["error_code"] == TOPIC_DENIED
        (row,) = await metadata(peer, 9, wanted, allow_auto_topic_creation=False)
        assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
        assert not broker.partitions.image.names
        rights.rule = all_rights
        (row,) = await metadata(peer, 9, wanted, allow_auto_topic_creation=True)
        assert (row["error_code"], len(row["partitions"])) == (0, 1)

    serve(tmp_path, story, authorizer=rights)


def test_authorized_operations_match_the_authorizer(tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        await prepared(broker)
        rights.rule = lambda right, resource: right in (Right.TOPICS_READ, Right.GROUPS_READ, Right.CLUSTER_READ)
        peer, describing = await broker.peer(), 1 << 8 | 1 << 10
        wanted = [{"name": "events", "topic_id": NO_TOPIC_ID}]
        (row,) = await metadata(peer, 9, wanted, include_topic_authorized_operations=True)
        assert row["topic_authorized_operations"] == describing
        (row,) = (await peer.ask("DescribeTopicPartitions", 0, {"topics": [{"name": "events"}]}))["topics"]
        assert row["topic_authorized_operations"] == describing
        asked = {"groups": [GROUP], "include_authorized_operations": True}
        (row,) = (await peer.ask("DescribeGroups", 5, asked))["groups"]
        assert row["authorized_operations"] == describing
        cluster = await peer.ask("DescribeCluster", 0, {"include_cluster_authorized_operations": True})
        assert cluster["cluster_authorized_operations"] == describing
        rights.rule = all_rights
        (row,) = await metadata(peer, 9, wanted, include_topic_authorized_operations=True)
        assert row["topic_authorized_operations"] > describing

    serve(tmp_path, story, authorizer=rights)


def test_a_subscription_commits_only_for_an_allowed_group(tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        topic = await prepared(broker)
        peer = await broker.peer()
        subscribed = await peer.ask("Subscribe", 0, named_requests(topic, GROUP)["Subscribe"])
        assert subscribed["error_code"] == 0
        await peer.frame()
        before = await state(broker)
        rights.rule = lambda right, resource: resource != GROUP
        commit = {"topics": [{"name": topic.name, "partitions": [{"partition": 0, "offset": 0}]}]}
        answer = await peer.ask("SubscriptionCommit", 0, {"subscription_id": 1, **commit})
        assert set(error_codes(answer)) == {GROUP_DENIED}
        rights.rule = all_rights
        assert await state(broker) == before

    serve(tmp_path, story, authorizer=rights)


def test_a_principal_without_rights_learns_nothing_about_which_topics_exist(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("there")
        peer = await broker.peer()
        for api in ("ListOffsets", "Fetch", "Metadata", "DescribeConfigs", "DeleteTopics", "OffsetForLeaderEpoch"):
            told = []
            for name in ("there", "missing"):
                request = named_requests(Topic(name, TopicId(UUID(int=5)), 1, {}), GROUP)[api]
                told.append(set(error_codes(await peer.ask(api, ROWS[api].first, request))))
            assert told[0] == told[1], api

    serve(tmp_path, story, authorizer=Rights(no_rights))


def test_a_transaction_coordinator_is_found_without_rights_on_groups(tmp_path: Path) -> None:
    rights = Rights(lambda right, resource: right is Right.MESSAGES_WRITE, any_resource=False)

    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        told = await peer.ask("FindCoordinator", 2, {"key": "orders", "key_type": 1})
        assert (told["error_code"], told["node_id"]) == (0, next(iter(broker.partitions.image.brokers)))
        told = await peer.ask("FindCoordinator", 2, {"key": GROUP, "key_type": 0})
        assert (told["error_code"], told["node_id"], told["port"]) == (GROUP_DENIED, -1, -1)

    serve(tmp_path, story, authorizer=rights)


def test_a_topic_named_by_id_is_refused_without_its_name(tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        topic = await prepared(broker, "hidden")
        rights.rule = no_rights
        peer = await broker.peer()
        told = await peer.ask("DeleteTopics", 6, {"topics": [{"name": None, "topic_id": topic.topic_id}]})
        (row,) = told["responses"]
        assert row["error_code"] == TOPIC_DENIED
        assert "hidden" not in str(row)
        request = named_requests(topic, GROUP)["Produce"]
        request["topic_data"] = [each | {"name": "", "topic_id": topic.topic_id} for each in request["topic_data"]]
        told = await peer.ask("Produce", 13, request)
        assert set(error_codes(told)) == {TOPIC_DENIED}
        assert "hidden" not in str(told)

    serve(tmp_path, story, authorizer=rights)


def test_group_responses_leave_out_topics_that_the_principal_may_not_see(tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        allowed, denied = await prepared(broker, "shop.a"), await prepared(broker, "shop.b")
        peer = await broker.peer()
        heartbeat = {"group_id": "new", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 60_000}
        heartbeat |= {"subscribed_topic_regex": "shop.*", "topic_partitions": []}
        rights.rule = lambda right, resource: resource != denied.name
        told = await peer.ask("ConsumerGroupHeartbeat", 1, heartbeat)
        assert [each["topic_id"] for each in told["assignment"]["topic_partitions"]] == [allowed.topic_id]
        (group,) = (await peer.ask("ConsumerGroupDescribe", 0, {"group_ids": ["new"]}))["groups"]
        assert (group["error_code"], group["members"]) == (TOPIC_DENIED, [])
        rights.rule = all_rights
        (group,) = (await peer.ask("ConsumerGroupDescribe", 0, {"group_ids": ["new"]}))["groups"]
        assert group["error_code"] == 0
        assert group["members"]

    serve(tmp_path, story, authorizer=rights)


def test_iterators_of_topics_that_the_principal_may_not_see_are_not_listed(tmp_path: Path) -> None:
    rights = Rights(all_rights)

    async def story(broker: ServedBroker) -> None:
        client = {"group_id": "readers", "client_id": "c"}
        topic = await prepared(broker)
        wanted = {"topic": topic.name, "partition": 0, "max_messages": 1, "in_flight_ms": -1, "start": -2}
        peer = await broker.peer()
        await peer.ask("IteratorJoin", 0, client)
        await peer.ask("GetIterator", 0, {**client, **wanted})
        assert len((await peer.ask("ListIterators", 0, client))["given"]) == 1
        rights.rule = lambda right, resource: resource != topic.name
        told = await peer.ask("ListIterators", 0, client)
        assert (told["error_code"], told["given"]) == (0, [])

    serve(tmp_path, story, authorizer=rights)
