"""Tests classic groups over the wire in every version of every request."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from builders.loops import for_each
from builders.partitions import HOST
from builders.requests import RawPeer, request_frame
from builders.served import LONG_S, ServedBroker, serve
from millstream.groups.runtime.coordinator import TOPIC
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode
from millstream.wire.framing import read_response_header
from millstream.wire.messages import read_response
from millstream.wire.schema import load

GROUP = "readers"


def known(api: str, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that this version of a request has."""
    rows = {row.name for row in load(f"{api}Request").fields if version in row.versions}
    return {name: value for name, value in fields.items() if name in rows}


async def ask(peer: RawPeer, api: str, version: int, **fields: Any) -> dict[str, Any]:
    return await peer.ask(api, version, known(api, version, fields))


def joining(version: int, member_id: str = "", **other: Any) -> dict[str, Any]:
    fields = {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"what I read"}],
    }
    return known("JoinGroup", version, fields | other)


async def join(peer: RawPeer, version: int, **other: Any) -> dict[str, Any]:
    """Join a group, in two steps if the version requires a member id."""
    answer = await peer.ask("JoinGroup", version, joining(version, **other))
    if answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED.number:
        assert version >= 4
        answer = await peer.ask("JoinGroup", version, joining(version, member_id=answer["member_id"], **other))
    assert answer["error_code"] == 0
    return answer


async def sync(peer: RawPeer, version: int, joined: dict[str, Any], **other: Any) -> dict[str, Any]:
    fields = {
        "group_id": GROUP,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined["member_id"], "assignment": b"yours"}],
    }
    return await peer.ask("SyncGroup", version, known("SyncGroup", version, fields | other))


@for_each("version", range(10))
def test_a_member_joins_and_learns_that_it_leads(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        joined = await join(peer, version)
        assert joined["generation_id"] == 1
        assert joined["leader"] == joined["member_id"] != ""
        assert joined["protocol_name"] == "range"
        assert [(each["member_id"], bytes(each["metadata"])) for each in joined["members"]] == [
            (joined["member_id"], b"what I read")
        ]
        if version >= 7:
            assert joined["protocol_type"] == "consumer"

    serve(tmp_path, story)


@for_each("version", range(10))
def test_a_refused_join_has_the_format_of_its_version(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        answer = await peer.ask("JoinGroup", version, joining(version, session_timeout_ms=1))
        assert answer["error_code"] == ErrorCode.INVALID_SESSION_TIMEOUT.number
        assert answer["protocol_name"] == (None if version >= 7 else "")
        answer = await peer.ask("JoinGroup", version, joining(version, group_id=""))
        assert answer["error_code"] == ErrorCode.INVALID_GROUP_ID.number

    serve(tmp_path, story)


@for_each("version", range(6))
def test_a_member_receives_the_assignment_of_the_group_leader(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        joined = await join(peer, 5)
        synced = await sync(peer, version, joined)
        assert synced["error_code"] == 0
        assert bytes(synced["assignment"]) == b"yours"
        if version >= 5:
            assert (synced["protocol_type"], synced["protocol_name"]) == ("consumer", "range")
        stale = await sync(peer, version, joined, generation_id=99)
        assert stale["error_code"] == ErrorCode.ILLEGAL_GENERATION.number

    serve(tmp_path, story)


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_from_version_5_on_a_sync_must_name_the_protocol(missing: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        answer = await sync(peer, 5, await join(peer, 5), **{missing: None})
        assert answer["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.number

    serve(tmp_path, story)


@for_each("version", range(5))
def test_a_heartbeat_must_name_the_generation_of_the_group(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        joined = await join(peer, 5)
        await sync(peer, 3, joined)
        named = {"group_id": GROUP, "member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        changes: list[tuple[dict[str, Any], ErrorCode]] = [
            ({}, ErrorCode.NONE),
            ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"group_id": "no such group"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ]
        for change, error in changes:
            answer = await ask(peer, "Heartbeat", version, **(named | change))
            assert answer["error_code"] == error.number

    serve(tmp_path, story)


@for_each("version", range(6))
def test_a_member_leaves_in_every_version(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        member_id = (await join(peer, 5))["member_id"]
        named = {"group_id": GROUP, "member_id": member_id}
        several = {"members": [{"member_id": member_id, "group_instance_id": None}]}
        for error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            answer = await ask(peer, "LeaveGroup", version, **(named | several))
            if version >= 3:
                assert answer["error_code"] == 0
                (row,) = answer["members"]
                assert (row["member_id"], row["error_code"]) == (member_id, error.number)
            else:
                assert answer["error_code"] == error.number

    serve(tmp_path, story)


def test_static_members_leave_by_their_instance_id(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        joined = await peer.ask("JoinGroup", 5, joining(5, group_instance_id="node-1"))
        assert joined["error_code"] == 0
        leaving = {"group_id": GROUP, "members": [{"member_id": "", "group_instance_id": "node-1"}]}
        (row,) = (await peer.ask("LeaveGroup", 3, leaving))["members"]
        assert (row["group_instance_id"], row["error_code"]) == ("node-1", 0)

    serve(tmp_path, story)


def test_a_waiting_join_delays_later_responses_but_not_their_requests(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        first, second = await broker.peer(), await broker.peer()
        leader = await join(first, 3)
        await sync(first, 3, leader)
        second.send(request_frame("JoinGroup", 3, joining(3), correlation_id=1))
        second.send(request_frame("Metadata", 9, {"topics": [{"name": topic.name}]}, correlation_id=2))
        await wait_for_rebalance(first, leader)
        assert not second.received
        await join(first, 3, member_id=leader["member_id"])
        frame = await second.frame()
        joined = read_response("JoinGroup", 3, frame, read_response_header("JoinGroup", 3, frame)[1])
        assert joined["error_code"] == 0
        assert joined["leader"] == leader["member_id"]
        assert joined["members"] == []
        await second.frame()

    serve(tmp_path, story)


async def wait_for_rebalance(peer: RawPeer, joined: dict[str, Any]) -> None:
    """Wait until another member has started a rebalance of the group."""
    member = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
    error = 0
    while error == 0:
        error = (await ask(peer, "Heartbeat", 3, group_id=GROUP, **member))["error_code"]
    assert error == ErrorCode.REBALANCE_IN_PROGRESS.number


def test_a_stopping_broker_answers_waiting_joins(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        first, second = await broker.peer(), await broker.peer()
        leader = await join(first, 3)
        await sync(first, 3, leader)
        waiting = asyncio.ensure_future(second.ask("JoinGroup", 3, joining(3)))
        await wait_for_rebalance(first, leader)
        stopping = asyncio.ensure_future(broker.listener.stop(LONG_S))
        assert (await waiting)["error_code"] == ErrorCode.NOT_COORDINATOR.number
        await stopping

    serve(tmp_path, story)


@for_each("version", range(7))
def test_a_group_is_described_with_its_members(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        joined = await join(peer, 5, group_instance_id="node-1")
        await sync(peer, 3, joined, group_instance_id="node-1")
        fields = {"groups": [GROUP, "no such group"], "include_authorized_operations": True}
        answer = await peer.ask("DescribeGroups", version, known("DescribeGroups", version, fields))
        found, missing = answer["groups"]
        assert (found["error_code"], found["group_id"], found["group_state"]) == (0, GROUP, "Stable")
        assert (found["protocol_type"], found["protocol_data"]) == ("consumer", "range")
        (member,) = found["members"]
        assert member["member_id"] == joined["member_id"]
        assert (member["client_id"], member["client_host"]) == ("test", f"/{HOST}")
        assert bytes(member["member_metadata"]) == b"what I read"
        assert bytes(member["member_assignment"]) == b"yours"
        if version >= 3:
            assert found["authorized_operations"] == sum(1 << each for each in (3, 6, 8, 10, 11))
        if version >= 4:
            assert member["group_instance_id"] == "node-1"
        assert missing["group_state"] == "Dead"
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert missing["error_code"] == expected.number
        if version >= 6:
            assert missing["error_message"]

    serve(tmp_path, story)


@for_each("version", range(6))
def test_groups_are_listed(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        assert (await peer.ask("ListGroups", version))["groups"] == []
        assert broker.partitions.image.topic(TOPIC) is None
        await sync(peer, 3, await join(peer, 5))
        answer = await peer.ask("ListGroups", version)
        assert answer["error_code"] == 0
        (row,) = answer["groups"]
        assert (row["group_id"], row["protocol_type"]) == (GROUP, "consumer")
        if version >= 4:
            assert row["group_state"] == "Stable"
        if version >= 5:
            assert row["group_type"] == "classic"

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"states_filter": ["stable"]}, True),
        ({"states_filter": ["Empty", "Stable"]}, True),
        ({"states_filter": ["Empty"]}, False),
        ({"states_filter": ["no such state"]}, False),
        ({"types_filter": ["Classic"]}, True),
        ({"types_filter": ["consumer", "share", "streams"]}, False),
        ({"types_filter": ["no such type"]}, False),
    ],
)
def test_groups_are_listed_by_state_and_type(filters: dict[str, list[str]], found: bool, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        await sync(peer, 3, await join(peer, 5))
        answer = await peer.ask("ListGroups", 5, filters)
        assert [row["group_id"] for row in answer["groups"]] == ([GROUP] if found else [])

    serve(tmp_path, story)


@for_each("version", range(3))
def test_a_group_without_members_is_deleted(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        joined = await join(peer, 5)

        async def delete(*names: str) -> list[int]:
            answer = await peer.ask("DeleteGroups", version, {"groups_names": list(names)})
            assert [row["group_id"] for row in answer["results"]] == list(dict.fromkeys(names))
            return [row["error_code"] for row in answer["results"]]

        assert await delete(GROUP, "no such group", GROUP) == [
            ErrorCode.NON_EMPTY_GROUP.number,
            ErrorCode.GROUP_ID_NOT_FOUND.number,
        ]
        await ask(peer, "LeaveGroup", 1, group_id=GROUP, member_id=joined["member_id"])
        assert await delete(GROUP) == [0]
        assert (await peer.ask("ListGroups", 4))["groups"] == []

    serve(tmp_path, story)


@for_each("version", range(7))
def test_finding_a_coordinator_creates_the_internal_topic(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        asked = {"key": GROUP, "key_type": 0, "coordinator_keys": [GROUP, ""]}
        answer = await peer.ask("FindCoordinator", version, known("FindCoordinator", version, asked))
        rows = answer["coordinators"] if version >= 4 else [answer]
        assert (rows[0]["error_code"], rows[0]["host"], rows[0]["port"]) == (0, HOST, broker.port)
        assert broker.partitions.image.topic(TOPIC) is not None
        if version >= 4:
            assert [row["key"] for row in rows] == [GROUP, ""]
            assert rows[1]["error_code"] == ErrorCode.INVALID_GROUP_ID.number
            assert (rows[1]["node_id"], rows[1]["host"], rows[1]["port"]) == (-1, "", -1)
            assert rows[1]["error_message"]
        else:
            asked["key"] = ""
            refused = await peer.ask("FindCoordinator", version, known("FindCoordinator", version, asked))
            assert refused["error_code"] == ErrorCode.INVALID_GROUP_ID.number

    serve(tmp_path, story)


def test_there_is_no_coordinator_when_the_topic_cannot_be_created(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        answer = await peer.ask("FindCoordinator", 3, {"key": GROUP, "key_type": 0})
        assert answer["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE.number
        assert "20000 partitions" in answer["error_message"]
        joined = await peer.ask("JoinGroup", 3, joining(3))
        assert joined["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE.number

    serve(tmp_path, story, groups=GroupSettings(offsets_partitions=20_000))
