"""Tests over plain sockets that the broker enforces the role of a connection."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch
from builders.requests import RawPeer, request_frame
from builders.served import ServedBroker, fetch_one, produce, serve
from millstream.model.errors import ErrorCode
from millstream.model.roles import PRODUCER_GROUP_MAX, Role
from millstream.wire.messages import write_request

GROUP = {"group_id": "g", "member_id": "m"}
CLIENT = {"group_id": "g", "client_id": "c"}
PRODUCING: dict[str, Any] = {
    "Produce": {"topic_data": [{"name": "events", "partition_data": [{"index": 0, "records": batch()}]}], "acks": -1},
    "Puts": {"topics": [{"name": "events", "entries": [{"partition": 0, "records": batch()}]}], "acks": -1},
    "InitProducerId": {"transactional_id": None},
}
CONSUMING: dict[str, Any] = {
    "Fetch": {"topics": [{"topic": "events", "partitions": [{"partition": 0}]}]},
    "JoinGroup": {**GROUP, "protocol_type": "consumer", "session_timeout_ms": 10_000},
    "SyncGroup": GROUP,
    "Heartbeat": GROUP,
    "LeaveGroup": {"group_id": "g"},
    "OffsetCommit": {
        "group_id": "g",
        "topics": [{"name": "events", "partitions": [{"partition_index": 0, "committed_offset": 3}]}],
    },
    "OffsetFetch": {
        "group_id": "g",
        "topics": [{"name": "events", "partition_indexes": [0]}],
        "groups": [{"group_id": "g"}],
    },
    "ConsumerGroupHeartbeat": {**GROUP, "subscribed_topic_names": ["events"]},
    "WatchMember": GROUP,
    "IteratorJoin": CLIENT,
    "IteratorHeartbeat": CLIENT,
    "IteratorLeave": CLIENT,
    "GetIterator": {**CLIENT, "topic": "events", "partition": 0},
    "ListIterators": CLIENT,
    "ReadIterator": {"iterator": b"any"},
    "CommitIterator": {**CLIENT, "iterator": b"any", "count": 0},
    "DeliverIterator": {**CLIENT, "iterator": b"any", "count": 0},
}
FORBIDDEN = {Role.PRODUCER: CONSUMING, Role.CONSUMER: PRODUCING}
EVERYBODYS: dict[str, tuple[int, Any]] = {
    "Metadata": (9, {"topics": None}),
    "ListOffsets": (5, {"topics": [{"name": "events", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}),
    "FindCoordinator": (4, {"coordinator_keys": ["g"]}),
    "Info": (0, {}),
    "ListGroups": (4, {}),
}


async def declared(broker: ServedBroker, role: Role, group: str | None = None) -> RawPeer:
    peer = await broker.peer()
    assert (await peer.ask("Role", 0, {"role": role.value, "producer_group": group}))["error_code"] == 0
    return peer


def error_codes(answer: Any) -> Iterator[int]:
    """Yield every error code anywhere in a response."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "error_code":
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from error_codes(each)


@pytest.mark.parametrize(("role", "api"), [(role, api) for role, forbidden in FORBIDDEN.items() for api in forbidden])
def test_apis_of_the_other_role_are_refused_in_every_version(role: Role, api: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        peer = await declared(broker, role)
        row = next(row for row in broker.table.rows.values() if row.api == api)
        expected = ErrorCode.ROLE_IS_FINAL if row.key >= 1000 else ErrorCode.POLICY_VIOLATION
        for version in range(row.first, row.last + 1):
            fields = dict(FORBIDDEN[role][api])
            if api == "Produce" and version >= 13:
                fields["topic_data"] = [{**fields["topic_data"][0], "topic_id": topic.topic_id}]
            answer = await peer.ask(api, version, fields)
            codes = [code for code in error_codes(answer) if code]
            assert codes, f"version {version} tells of no error"
            assert set(codes) == {expected.number}
            if "error_message" in answer:
                assert f"may not use {api}" in answer["error_message"]
        assert broker.partitions.of("events")[0].high_watermark == 0

    serve(tmp_path, story)


def test_every_api_with_a_role_refuses_the_other_role(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peers = {role: await declared(broker, role) for role in Role}
        for row in broker.table.rows.values():
            if row.role is not None:
                other = Role.CONSUMER if row.role is Role.PRODUCER else Role.PRODUCER
                answer = await peers[other].ask(row.api, row.last, FORBIDDEN[other].get(row.api))
                assert any(error_codes(answer)), row.api

    serve(tmp_path, story)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("api", EVERYBODYS)
def test_apis_without_a_role_are_open_to_both_roles(role: Role, api: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await declared(broker, role)
        version, fields = EVERYBODYS[api]
        assert not any(error_codes(await peer.ask(api, version, fields)))

    serve(tmp_path, story)


def test_roles_use_their_apis_and_undeclared_connections_use_all(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        producer, consumer, plain = (
            await declared(broker, Role.PRODUCER, "shop"),
            await declared(broker, Role.CONSUMER),
            await broker.peer(),
        )
        assert (await produce(producer, "events")).error == 0
        assert (await produce(plain, "events")).error == 0
        for reader in (consumer, plain):
            assert (await fetch_one(reader, "events", 0)).high_watermark == 2

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1, None), (2, None)),
        ((2, None), (1, None)),
        ((1, None), (1, "shop")),
        ((1, "shop"), (1, "store")),
        ((1, "shop"), (1, None)),
    ],
)
def test_a_connection_role_cannot_be_changed_once_declared(
    first: tuple[int, str | None], second: tuple[int, str | None], tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()

        async def declare(role: tuple[int, str | None]) -> Any:
            return await peer.ask("Role", 0, {"role": role[0], "producer_group": role[1]})

        assert (await declare(first))["error_code"] == 0
        refused = await declare(second)
        assert refused["error_code"] == ErrorCode.ROLE_IS_FINAL.number
        assert "open another connection" in refused["error_message"]
        assert (await declare(first))["error_code"] == 0
        stored = await produce(peer, "events")
        assert (stored.error == 0) is (first[0] == Role.PRODUCER)

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("role", "group", "problem"),
    [
        (0, None, "unknown role 0"),
        (3, None, "unknown role 3"),
        (-1, "shop", "unknown role -1"),
        (2, "shop", "the role is not producer"),
        (1, "", "it must have 1 to 249"),
        (1, "x" * (PRODUCER_GROUP_MAX + 1), "has 250 characters"),
    ],
)
def test_an_invalid_role_is_refused_and_declares_nothing(
    role: int, group: str | None, problem: str, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        answer = await peer.ask("Role", 0, {"role": role, "producer_group": group})
        assert answer["error_code"] == ErrorCode.INVALID_REQUEST.number
        assert problem in answer["error_message"]
        assert (await produce(peer, "events")).error == 0
        assert (await fetch_one(peer, "events", 0)).high_watermark == 1

    serve(tmp_path, story)


@pytest.mark.parametrize("api", ["Produce", "Puts"])
def test_a_write_with_acks_0_by_a_consumer_closes_the_connection(api: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await declared(broker, Role.CONSUMER)
        version = 9 if api == "Produce" else 0
        peer.send(request_frame(api, version, body=[write_request(api, version, {**PRODUCING[api], "acks": 0})]))
        await peer.lost()
        assert broker.partitions.of("events")[0].high_watermark == 0

    serve(tmp_path, story)


def test_a_role_applies_to_requests_pipelined_after_its_declaration(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        peer.send(
            request_frame("Produce", 9, body=[write_request("Produce", 9, PRODUCING["Produce"])], correlation_id=1),
            request_frame("Role", 0, {"role": Role.CONSUMER.value}, correlation_id=2),
            request_frame("Produce", 9, body=[write_request("Produce", 9, PRODUCING["Produce"])], correlation_id=3),
        )
        for _ in range(3):
            await peer.frame()
        assert broker.partitions.of("events")[0].high_watermark == 1

    serve(tmp_path, story)
