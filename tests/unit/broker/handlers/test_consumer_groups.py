"""Tests the consumer protocol over the wire, in which the broker assigns the partitions."""

from pathlib import Path
from typing import Any
from uuid import UUID

from builders.loops import for_each
from builders.partitions import HOST
from builders.requests import RawPeer
from builders.served import ServedBroker, serve
from millstream.model.errors import ErrorCode

GROUP = "readers"
MEMBER = "member-1"
NOT_CHANGED: dict[str, Any] = {"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout_ms": -1}


async def beat(
    peer: RawPeer, version: int = 1, member_id: str = MEMBER, epoch: int = 0, **other: Any
) -> dict[str, Any]:
    joining = {"subscribed_topic_names": ["events"], "topic_partitions": [], "rebalance_timeout_ms": 60_000}
    fields = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch}
    return await peer.ask("ConsumerGroupHeartbeat", version, fields | (joining if epoch == 0 else NOT_CHANGED) | other)


def assigned(answer: dict[str, Any]) -> dict[UUID, list[int]] | None:
    if answer["assignment"] is None:
        return None
    return {row["topic_id"]: list(row["partitions"]) for row in answer["assignment"]["topic_partitions"]}


@for_each("version", [0, 1])
def test_a_member_joins_and_receives_its_assignment(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic(partitions=3)
        peer = await broker.peer()
        joined = await beat(peer, version, "" if version == 0 else MEMBER)
        assert (joined["error_code"], joined["member_epoch"]) == (0, 1)
        assert joined["heartbeat_interval_ms"] == 5_000
        member_id = joined["member_id"]
        assert member_id == MEMBER if version else member_id
        assert assigned(joined) == {topic.topic_id: [0, 1, 2]}
        owned = [{"topic_id": topic.topic_id, "partitions": [0, 1, 2]}]
        again = await beat(peer, version, member_id, 1, topic_partitions=owned)
        assert (again["error_code"], again["member_epoch"], again["assignment"]) == (0, 1, None)
        left = await beat(peer, version, member_id, -1)
        assert (left["error_code"], left["member_epoch"]) == (0, -1)

    serve(tmp_path, story)


def test_version_1_refuses_a_join_without_a_member_id(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        answer = await beat(await broker.peer(), 1, "")
        assert answer["error_code"] == ErrorCode.INVALID_REQUEST.number
        assert answer["error_message"]

    serve(tmp_path, story)


def test_a_regular_expression_matches_topics_except_internal_ones(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        peer = await broker.peer()
        answer = await beat(peer, subscribed_topic_names=None, subscribed_topic_regex=".*")
        epoch = answer["member_epoch"]
        while not assigned(answer):
            answer = await beat(peer, epoch=epoch)
            epoch = answer["member_epoch"]
        assert assigned(answer) == {topic.topic_id: [0]}
        bad = await beat(peer, member_id="other", subscribed_topic_names=None, subscribed_topic_regex="(")
        assert bad["error_code"] == ErrorCode.INVALID_REGULAR_EXPRESSION.number

    serve(tmp_path, story)


def test_a_member_with_a_wrong_epoch_is_fenced(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        await beat(peer)
        assert (await beat(peer, epoch=9))["error_code"] == ErrorCode.FENCED_MEMBER_EPOCH.number
        assert (await beat(peer, member_id="nobody", epoch=1))["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID.number

    serve(tmp_path, story)


@for_each("version", range(9, 11))
def test_members_commit_and_fetch_with_their_epoch(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        peer = await broker.peer()
        await beat(peer)
        naming = {"topic_id": topic.topic_id} if version >= 10 else {"name": topic.name}

        async def commit(epoch: int) -> int:
            rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
            fields = {"group_id": GROUP, "member_id": MEMBER, "generation_id_or_member_epoch": epoch}
            answer = await peer.ask("OffsetCommit", version, fields | {"topics": [naming | {"partitions": rows}]})
            return int(answer["topics"][0]["partitions"][0]["error_code"])

        async def fetch(epoch: int) -> dict[str, Any]:
            topics = [naming | {"partition_indexes": [0]}]
            group = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": epoch, "topics": topics}
            return dict((await peer.ask("OffsetFetch", version, {"groups": [group]}))["groups"][0])

        assert await commit(7) == ErrorCode.STALE_MEMBER_EPOCH.number
        assert await commit(1) == 0
        assert (await fetch(7))["error_code"] == ErrorCode.STALE_MEMBER_EPOCH.number
        assert (await fetch(1))["topics"][0]["partitions"][0]["committed_offset"] == 5

    serve(tmp_path, story)


@for_each("version", [0, 1])
def test_a_group_is_described(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic(partitions=2)
        peer = await broker.peer()
        await beat(peer, instance_id="node-1", rack_id="rack-1")
        fields = {"group_ids": [GROUP, "no such group", ""], "include_authorized_operations": True}
        answer = await peer.ask("ConsumerGroupDescribe", version, fields)
        found, missing, nameless = answer["groups"]
        assert (found["error_code"], found["group_state"], found["assignor_name"]) == (0, "Stable", "uniform")
        assert (found["group_epoch"], found["assignment_epoch"]) == (1, 1)
        assert found["authorized_operations"] > 0
        (member,) = found["members"]
        assert (member["member_id"], member["instance_id"], member["rack_id"]) == (MEMBER, "node-1", "rack-1")
        assert (member["client_id"], member["client_host"]) == ("test", f"/{HOST}")
        assert member["subscribed_topic_names"] == ["events"]
        whole = [{"topic_id": topic.topic_id, "topic_name": "events", "partitions": [0, 1]}]
        assert member["assignment"]["topic_partitions"] == member["target_assignment"]["topic_partitions"] == whole
        if version == 1:
            assert member["member_type"] == 1
        assert (missing["error_code"], missing["members"]) == (ErrorCode.GROUP_ID_NOT_FOUND.number, [])
        assert missing["error_message"]
        assert nameless["error_code"] == ErrorCode.INVALID_GROUP_ID.number
        listed = await peer.ask("ListGroups", 5, {"types_filter": ["Consumer"]})
        assert [(row["group_id"], row["group_type"]) for row in listed["groups"]] == [(GROUP, "consumer")]

    serve(tmp_path, story)


def test_groups_are_unavailable_without_the_internal_topic(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        await broker.groups.stop()
        assert (await beat(peer))["error_code"] == ErrorCode.NOT_COORDINATOR.number

    serve(tmp_path, story)
