"""WatchMember over the wire: its further frame, and what it must not delay."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from builders.groups.consumers import JOINING
from builders.loops import for_each
from builders.requests import request_frame
from builders.sdk.subscriber import Subscriber
from builders.served import ServedBroker, until
from builders.served import serve as serve_with
from millstream.broker.push import subscriptions
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode
from millstream.model.roles import Role
from millstream.wire.framing import read_correlation_id

GROUP = "readers"
HEARTBEAT = "ConsumerGroupHeartbeat"
NOT_CHANGED: dict[str, Any] = {"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout_ms": -1}
JOINS: dict[str, Any] = {
    "subscribed_topic_names": ["events"],
    "topic_partitions": [],
    "rebalance_timeout_ms": JOINING["rebalance_timeout_ms"],
}


def serve(directory: Path, story: Callable[[ServedBroker], Awaitable[None]]) -> None:
    serve_with(directory, story, groups=GroupSettings(consumer_assignment_interval_ms=0))


def beat_fields(member_id: str, epoch: int, **other: Any) -> dict[str, Any]:
    changes = JOINS if epoch == 0 else NOT_CHANGED
    return {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch} | changes | other


async def beat(client: Subscriber, member_id: str, epoch: int, **other: Any) -> dict[str, Any]:
    answer = await client.ask(HEARTBEAT, beat_fields(member_id, epoch, **other), version=1)
    assert answer["error_code"] == 0, answer
    return answer


async def watch(client: Subscriber, member_id: str) -> int:
    correlation_id = client.send("WatchMember", {"group_id": GROUP, "member_id": member_id})
    answer = await client.answer("WatchMember", correlation_id)
    assert answer["error_code"] == 0, answer
    return correlation_id


async def client_of(broker: ServedBroker) -> Subscriber:
    return Subscriber(await broker.peer())


def test_a_watch_is_answered_when_another_member_joins_revokes_or_leaves(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic(partitions=2)
        client, other = await client_of(broker), await client_of(broker)
        await beat(client, "first", 0)
        watching = await watch(client, "first")
        joined = await beat(other, "second", 0)
        assert (await client.answer("WatchMember", watching))["error_code"] == 0

        asked = await beat(client, "first", 1)
        (kept,) = asked["assignment"]["topic_partitions"]
        waiting = await watch(other, "second")
        await beat(client, "first", 1, topic_partitions=[kept])
        assert (await other.answer("WatchMember", waiting))["error_code"] == 0
        taken = await beat(other, "second", joined["member_epoch"])
        (row,) = taken["assignment"]["topic_partitions"]
        assert sorted([*kept["partitions"], *row["partitions"]]) == [0, 1]
        assert row["topic_id"] == topic.topic_id

        watching = await watch(client, "first")
        await beat(other, "second", -1)
        assert (await client.answer("WatchMember", watching))["error_code"] == 0

    serve(tmp_path, story)


def test_requests_behind_an_open_watch_are_answered(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        client = await client_of(broker)
        await beat(client, "first", 0)
        watching = await watch(client, "first")
        row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        fields = {"group_id": GROUP, "member_id": "first", "generation_id_or_member_epoch": 1}
        topics = [{"topic_id": topic.topic_id, "partitions": [row]}]
        committed = await client.ask("OffsetCommit", fields | {"topics": topics}, version=10)
        assert committed["topics"][0]["partitions"][0]["error_code"] == 0
        assert (await beat(client, "first", 1))["assignment"] is None
        await beat(client, "first", -1)
        assert (await client.answer("WatchMember", watching))["error_code"] == 0

    serve(tmp_path, story)


@for_each("version", [0, 1])
def test_a_heartbeat_without_a_watch_gets_exactly_one_immediate_response(version: int, tmp_path: Path) -> None:
    """What Kafka's clients rely on: every heartbeat has one response, at once, whatever the group goes through."""

    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        peer, watching = await broker.peer(), await client_of(broker)
        frames = [request_frame(HEARTBEAT, version, beat_fields("kafka", 0), correlation_id=0)]
        frames += [
            request_frame(HEARTBEAT, version, beat_fields("kafka", 1), correlation_id=number) for number in range(1, 20)
        ]
        peer.send(*frames)
        assert [read_correlation_id(await peer.frame()) for _ in range(20)] == list(range(20))
        await beat(watching, "sdk", 0)
        await watch(watching, "sdk")
        await beat(watching, "sdk", -1)
        peer.send(request_frame(HEARTBEAT, version, beat_fields("kafka", 1), correlation_id=99))
        assert read_correlation_id(await peer.frame()) == 99
        assert not peer.received

    serve(tmp_path, story)


def test_a_watch_is_answered_at_once_when_the_group_changed_before_it(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        client, other = await client_of(broker), await client_of(broker)
        await beat(client, "first", 0)
        await beat(other, "second", 0)
        watching = await watch(client, "first")
        assert (await client.answer("WatchMember", watching))["error_code"] == 0

    serve(tmp_path, story)


def test_a_watch_of_an_unknown_member_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await client_of(broker)
        await beat(client, "other", 0)
        answer = await client.ask("WatchMember", {"group_id": "nobody", "member_id": "other"})
        assert ErrorCode.of(answer["error_code"]) is ErrorCode.GROUP_ID_NOT_FOUND
        answer = await client.ask("WatchMember", {"group_id": GROUP, "member_id": "first"})
        assert ErrorCode.of(answer["error_code"]) is ErrorCode.UNKNOWN_MEMBER_ID
        assert answer["error_message"]
        assert not client.peer.received
        answer = await client.ask("Role", {"role": Role.PRODUCER.value, "producer_group": None})
        assert answer["error_code"] == 0, "no watch is open"

    serve(tmp_path, story)


def test_a_connection_has_a_bounded_number_of_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "PER_CONNECTION_MAX", 1)

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await client_of(broker)
        await beat(client, "first", 0)
        await watch(client, "first")
        answer = await client.ask("WatchMember", {"group_id": GROUP, "member_id": "first"})
        assert ErrorCode.of(answer["error_code"]) is ErrorCode.POLICY_VIOLATION
        answer = await client.ask("Role", {"role": Role.PRODUCER.value, "producer_group": None})
        assert ErrorCode.of(answer["error_code"]) is ErrorCode.ROLE_IS_FINAL

    serve(tmp_path, story)


def test_a_lost_connection_ends_its_watches(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        client, other = await client_of(broker), await client_of(broker)
        await beat(client, "first", 0)
        await watch(client, "first")
        client.peer.close()
        await until(lambda: len(broker.listener.shared.connections) == 1)
        joined = await beat(other, "second", 0)
        again = await client_of(broker)
        watching = await watch(again, "first")
        assert (await again.answer("WatchMember", watching))["error_code"] == 0
        assert joined["member_epoch"] == 2

    serve(tmp_path, story)


def test_a_broker_that_stops_ends_watches_with_an_error(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await client_of(broker)
        await beat(client, "first", 0)
        watching = await watch(client, "first")
        stopping = asyncio.create_task(broker.listener.stop(60.0))
        answer = await client.answer("WatchMember", watching)
        assert ErrorCode.of(answer["error_code"]) is ErrorCode.SHUTTING_DOWN
        await stopping

    serve(tmp_path, story)


def test_a_coordinator_that_stops_ends_watches_with_an_error(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await client_of(broker)
        await beat(client, "first", 0)
        watching = await watch(client, "first")
        await broker.groups.stop()
        answer = await client.answer("WatchMember", watching)
        assert ErrorCode.of(answer["error_code"]) is ErrorCode.NOT_COORDINATOR

    serve(tmp_path, story)
