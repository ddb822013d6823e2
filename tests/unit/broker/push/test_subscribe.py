"""Tests push subscriptions over plain sockets."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch, numbered_batch
from builders.disks import ColdDisk
from builders.sdk.subscriber import Subscribed, Subscriber, wanted
from builders.served import ServedBroker, produce, serve, until
from millstream.broker.net.outbox import Outbox
from millstream.broker.push import subscriptions
from millstream.broker.push.subscriptions import PARTITIONS_MAX
from millstream.model.errors import ErrorCode
from millstream.model.roles import Role
from millstream.seams.local_disk import LocalDisk
from millstream.storage.store import FlushPolicy

END, BEGINNING, GROUP = -1, -2, -3


async def subscriber(broker: ServedBroker) -> Subscriber:
    return Subscriber(await broker.peer())


async def quiet(client: Subscriber) -> None:
    """Wait until nothing more can be pushed: a request is answered and every subscription has had its turn."""
    for _ in range(3):
        await client.ask("Info", {})


@pytest.mark.parametrize("policy", [FlushPolicy.OS, FlushPolicy.ALWAYS])
def test_stored_messages_are_sent_at_once_and_later_ones_when_written(policy: FlushPolicy, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        writer, client = await broker.peer(), await subscriber(broker)
        await produce(writer, "events", numbered_batch(10))
        reader = await client.subscribe({"events": {0: 3}})
        assert reader.begins == {("events", 0): 3}
        assert await reader.receive(7) == [b"%d" % n for n in range(3, 10)]
        for number in range(5):
            await produce(writer, "events", batch(b"later %d" % number))
        assert (await reader.receive(12))[7:] == [b"later %d" % n for n in range(5)]

    serve(tmp_path, story, policy=policy)


def test_deliveries_pause_at_a_full_window_until_share_percent_of_it_is_committed(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        writer, client = await broker.peer(), await subscriber(broker)
        for number in range(100):
            await produce(writer, "events", batch(b"%d" % number))
        reader = await client.subscribe({"events": {0: 0}}, window_messages=20, share_percent=50)
        await reader.receive(20)
        await reader.commit({"events": {0: 9}})
        await quiet(client)
        assert len(reader.values) == 20
        await reader.commit({"events": {0: 10}})
        assert await reader.receive(30) == [b"%d" % n for n in range(30)]
        await quiet(client)
        assert reader.sent["events", 0] == 30

    serve(tmp_path, story)


def test_the_window_limits_bytes_and_a_larger_batch_is_sent_alone(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        writer, client = await broker.peer(), await subscriber(broker)
        for _ in range(10):
            await produce(writer, "events", batch(b"x" * 1_500))
        await produce(writer, "events", batch(b"y" * 20_000))
        await produce(writer, "events", batch(b"z"))
        reader = await client.subscribe({"events": {0: 0}}, window_bytes=4_096, share_percent=1)
        sizes = []
        while reader.sent["events", 0] < 12:
            frame = await reader.delivery()
            sizes.append(len(frame["partitions"][0]["records"]))
            await reader.commit()
        assert max(size for size in sizes if size < 20_000) <= 4_096
        assert sum(size > 20_000 for size in sizes) == 1
        assert [len(value or b"") for value in reader.values] == [1_500] * 10 + [20_000, 1]

    serve(tmp_path, story)


@pytest.mark.parametrize(("at", "begins"), [(0, 2), (END, 10), (BEGINNING, 2), (10, 10), (15, 15)])
def test_a_subscription_begins_at_its_start_position(at: int, begins: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        writer, client = await broker.peer(), await subscriber(broker)
        await produce(writer, "events", numbered_batch(10))
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        await partition.delete_records(2)
        reader = await client.subscribe({"events": {0: at}}, otherwise=BEGINNING)
        assert reader.begins == {("events", 0): begins}
        await produce(writer, "events", numbered_batch(10, first=10))
        assert await reader.receive(20 - begins) == [b"%d" % n for n in range(begins, 20)]

    serve(tmp_path, story)


def test_many_partitions_share_one_window(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=50)
        writer, client = await broker.peer(), await subscriber(broker)
        for partition in range(50):
            await produce(writer, "events", numbered_batch(4), partition=partition)
        reader = await client.subscribe({"events": dict.fromkeys(range(50), 0)}, window_messages=30, share_percent=100)
        for received in range(28, 201, 28):
            await reader.receive(received)
            await quiet(client)
            assert sum(reader.sent.values()) == received, "seven batches of four fit, an eighth does not"
            await reader.commit()
        await reader.receive(200)
        assert sorted(value or b"" for value in reader.values) == sorted([b"0", b"1", b"2", b"3"] * 50)

    serve(tmp_path, story)


def test_other_requests_are_answered_in_their_order_between_deliveries(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        writer, client = await broker.peer(), await subscriber(broker)
        reader = await client.subscribe({"events": {0: 0}})
        asked = []
        for number in range(20):
            asked.append(client.send("Info", {}))
            await produce(writer, "events", batch(b"%d" % number))
        order: list[int] = []
        while len(order) < len(asked):
            correlation_id = await client.take_frame()
            if correlation_id != reader.id:
                order.append(correlation_id)
        assert order == asked
        assert await reader.receive(20) == [b"%d" % n for n in range(20)]

    serve(tmp_path, story)


def test_nothing_is_sent_after_unsubscribe(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        writer, client = await broker.peer(), await subscriber(broker)
        reader = await client.subscribe({"events": {0: 0}})
        await produce(writer, "events", batch(b"one"))
        await reader.receive(1)
        assert (await client.ask("Unsubscribe", {"subscription_id": reader.id}))["error_code"] == 0
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        assert partition.waiting == 0
        await produce(writer, "events", batch(b"two"))
        await quiet(client)
        assert not client.peer.received
        for api in ("Unsubscribe", "SubscriptionCommit"):
            answer = await client.ask(api, {"subscription_id": reader.id})
            assert answer["error_code"] == ErrorCode.RESOURCE_NOT_FOUND.number

    serve(tmp_path, story)


def test_a_deleted_topic_is_reported_and_other_topics_continue(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("kept")
        await broker.topic("gone")
        writer, client = await broker.peer(), await subscriber(broker)
        reader = await client.subscribe({"kept": {0: 0}, "gone": {0: 0}})
        await produce(writer, "gone", batch(b"one"))
        await reader.receive(1)
        await broker.partitions.delete("gone")
        frame = await reader.delivery()
        (row,) = frame["partitions"]
        assert (row["topic"], row["error_code"]) == ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number)
        assert frame["error_code"] == 0
        await broker.topic("gone")
        await produce(writer, "gone", batch(b"of another topic"))
        await produce(writer, "kept", batch(b"two"))
        assert await reader.receive(2) == [b"one", b"two"]
        await broker.partitions.delete("kept")
        frame = await reader.delivery()
        assert frame["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
        assert (await client.ask("Unsubscribe", {"subscription_id": reader.id}))["error_code"] != 0

    serve(tmp_path, story)


def test_a_topic_id_selects_that_topic_and_not_a_recreated_one(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        old = await broker.topic()
        other = await broker.topic("other")
        writer, client = await broker.peer(), await subscriber(broker)
        await produce(writer, "events", batch(b"old"))
        (fields,) = wanted({"events": {0: 0}})
        correlation_id = client.send("Subscribe", {"topics": [{**fields, "topic_id": old.topic_id}]})
        reader = Subscribed(client, correlation_id, await client.answer("Subscribe", correlation_id))
        assert await reader.receive(1) == [b"old"]
        await broker.partitions.delete("events")
        await broker.topic()
        await produce(writer, "events", batch(b"new"))
        for topic_id in (old.topic_id, other.topic_id):
            answer = await client.ask("Subscribe", {"topics": [{**fields, "topic_id": topic_id}]})
            assert ErrorCode.of(answer["error_code"]) is ErrorCode.UNKNOWN_TOPIC_ID
            assert [ErrorCode.of(row["error_code"]) for row in answer["partitions"]] == [ErrorCode.UNKNOWN_TOPIC_ID]

    serve(tmp_path, story)


@pytest.mark.parametrize("group_id", [None, "readers"])
def test_messages_of_a_deleted_topic_free_the_window(group_id: str | None, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("kept")
        await broker.topic("gone")
        writer, client = await broker.peer(), await subscriber(broker)
        reader = await client.subscribe(
            {"kept": {0: 0}, "gone": {0: 0}}, window_messages=5, share_percent=100, group_id=group_id
        )
        await produce(writer, "gone", numbered_batch(5))
        await reader.receive(5)
        await produce(writer, "kept", batch(b"kept"))
        await quiet(client)
        await broker.partitions.delete("gone")
        assert await reader.commit({"gone": {0: 5}}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number]
        assert (await reader.receive(6))[-1] == b"kept"

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("otherwise", "ended"), [(BEGINNING, False), (END, False), (GROUP, True)], ids=["beginning", "end", "nowhere"]
)
def test_a_position_deleted_by_retention_moves_or_ends_the_feed(otherwise: int, ended: bool, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        writer, client = await broker.peer(), await subscriber(broker)
        for number in range(10):
            await produce(writer, "events", batch(b"%d" % number))
        reader = await client.subscribe({"events": {0: 0}}, window_messages=2, share_percent=100, otherwise=otherwise)
        await reader.receive(2)
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        await partition.delete_records(7)
        await reader.commit()
        if ended:
            frame = await reader.delivery()
            assert frame["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE.number
            assert frame["partitions"][0]["log_start_offset"] == 7
            return
        await produce(writer, "events", batch(b"10"))
        frame = await reader.delivery()
        assert frame["partitions"][0]["position"] == (7 if otherwise == BEGINNING else 10)

    serve(tmp_path, story)


def test_a_subscription_resumes_at_the_groups_committed_offset(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        writer, client = await broker.peer(), await subscriber(broker)
        await produce(writer, "events", numbered_batch(10))
        reader = await client.subscribe({"events": {0: GROUP, 1: GROUP}}, group_id="readers", otherwise=BEGINNING)
        assert reader.begins == {("events", 0): 0, ("events", 1): 0}
        await reader.receive(10)
        assert await reader.commit({"events": {0: 6}}) == [0]
        client.peer.close()
        again = await subscriber(broker)
        reader = await again.subscribe({"events": {0: GROUP, 1: GROUP}}, group_id="readers", otherwise=GROUP)
        assert reader.begins["events", 0] == 6
        assert reader.refused == {("events", 1): ErrorCode.OFFSET_OUT_OF_RANGE.number}
        assert await reader.receive(4) == [b"6", b"7", b"8", b"9"]
        assert await reader.commit({"events": {0: 8}}, member_id="nobody", generation_id_or_member_epoch=3) == [
            ErrorCode.UNKNOWN_MEMBER_ID.number
        ]

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


def test_a_refused_commit_frees_no_window(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        writer, client = await broker.peer(), await subscriber(broker)
        for number in range(20):
            await produce(writer, "events", batch(b"%d" % number))
        reader = await client.subscribe({"events": {0: 0}}, group_id="readers", window_messages=5)
        await reader.receive(5)
        assert await reader.commit({"events": {0: 6}}) == [ErrorCode.OFFSET_OUT_OF_RANGE.number]
        assert await reader.commit({"events": {0: -1}}) == [ErrorCode.OFFSET_OUT_OF_RANGE.number]
        assert await reader.commit({"events": {1: 0}}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number]
        stranger = {"member_id": "nobody", "generation_id_or_member_epoch": 3}
        assert await reader.commit({"events": {0: 5}}, **stranger) == [ErrorCode.GROUP_ID_NOT_FOUND.number]
        await quiet(client)
        assert len(reader.values) == 5
        assert await reader.commit({"events": {0: 5}}) == [0]
        await reader.receive(10)

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"window_messages": 0}, ErrorCode.INVALID_REQUEST),
        ({"window_messages": 10_000_001}, ErrorCode.INVALID_REQUEST),
        ({"window_bytes": 4_095}, ErrorCode.INVALID_REQUEST),
        ({"share_percent": 0}, ErrorCode.INVALID_REQUEST),
        ({"share_percent": 101}, ErrorCode.INVALID_REQUEST),
        ({"otherwise": 0}, ErrorCode.INVALID_REQUEST),
        ({"topics": []}, ErrorCode.INVALID_REQUEST),
        ({"topics": wanted({"events": dict.fromkeys(range(PARTITIONS_MAX + 1), 0)})}, ErrorCode.INVALID_REQUEST),
        ({"topics": wanted({"events": {0: GROUP}})}, ErrorCode.INVALID_REQUEST),
        ({"topics": wanted({"events": {0: -4}})}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"topics": wanted({"missing": {0: 0}})}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topics": wanted({"a/b": {0: 0}})}, ErrorCode.INVALID_TOPIC),
    ],
)
def test_invalid_subscriptions_are_refused_with_a_reason(
    fields: dict[str, Any], error: ErrorCode, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await subscriber(broker)
        answer = await client.ask("Subscribe", {"topics": wanted({"events": {0: 0}}), **fields})
        assert ErrorCode.of(answer["error_code"]) is error
        assert answer["error_message"]
        await client.subscribe({"events": {0: 0}})

    serve(tmp_path, story)


def test_a_connection_has_a_bounded_number_of_subscriptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "PER_CONNECTION_MAX", 64)

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await subscriber(broker)
        first = await client.subscribe({"events": {0: 0}})
        for _ in range(63):
            await client.subscribe({"events": {0: 0}})
        answer = await client.ask("Subscribe", {"topics": wanted({"events": {0: 0}})})
        assert ErrorCode.of(answer["error_code"]) is ErrorCode.POLICY_VIOLATION
        await client.ask("Unsubscribe", {"subscription_id": first.id})
        await client.subscribe({"events": {0: 0}})

    serve(tmp_path, story)


def test_a_closed_connection_leaves_no_subscription(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=3)
        client = await subscriber(broker)
        await client.subscribe({"events": {0: 0, 1: 0, 2: 0}})
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        await until(lambda: partition.waiting == 1)
        client.peer.close()
        await until(lambda: partition.waiting == 0 and broker.listener.connection_count == 0)

    serve(tmp_path, story)


def test_a_stopping_broker_ends_subscriptions_with_an_error(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await subscriber(broker)
        reader = await client.subscribe({"events": {0: 0}})
        stopping = asyncio.ensure_future(broker.listener.stop(10))
        frame = await reader.delivery()
        assert frame["error_code"] == ErrorCode.SHUTTING_DOWN.number
        await client.peer.lost()
        await stopping

    serve(tmp_path, story)


def test_a_half_closed_subscriber_gets_network_exception_and_not_shutting_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await subscriber(broker)
        reader = await client.subscribe({"events": {0: 0}})
        with monkeypatch.context() as patch:
            patch.setattr(Outbox, "is_sending", True)
            client.peer.transport.write_eof()
            frame = await reader.delivery()
        assert ErrorCode.of(frame["error_code"]) is ErrorCode.NETWORK_EXCEPTION
        assert frame["error_message"] == "the client has closed its side of the connection"

    serve(tmp_path, story)


@pytest.mark.parametrize("disk", [LocalDisk(), ColdDisk()], ids=["cached", "cold"])
def test_large_deliveries_from_a_real_disk_arrive_completely(disk: LocalDisk, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        writer, client = await broker.peer(), await subscriber(broker)
        for number in range(40):
            await produce(
                writer, "events", numbered_batch(100, first=100 * number, size_bytes=500), partition=number % 2
            )
        reader = await client.subscribe({"events": {0: 0, 1: 0}}, window_bytes=600_000)
        while len(reader.values) < 4_000:
            await reader.delivery()
            await reader.commit()
        assert sorted(int((value or b"").rstrip(b".")) for value in reader.values) == list(range(4_000))

    serve(tmp_path, story, disk=disk)


def test_a_producer_cannot_subscribe(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await subscriber(broker)
        assert (await client.ask("Role", {"role": Role.PRODUCER.value}))["error_code"] == 0
        for api in ("Subscribe", "SubscriptionCommit", "Unsubscribe"):
            answer = await client.ask(api, {})
            assert ErrorCode.of(answer["error_code"]) is ErrorCode.ROLE_IS_FINAL

    serve(tmp_path, story)


def test_a_connection_with_a_subscription_cannot_become_a_producer(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        client = await subscriber(broker)
        reader = await client.subscribe({"events": {0: 0}})
        refused = await client.ask("Role", {"role": Role.PRODUCER.value})
        assert ErrorCode.of(refused["error_code"]) is ErrorCode.ROLE_IS_FINAL
        await client.ask("Unsubscribe", {"subscription_id": reader.id})
        assert (await client.ask("Role", {"role": Role.PRODUCER.value}))["error_code"] == 0

    serve(tmp_path, story)
