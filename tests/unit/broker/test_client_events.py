"""Tests that each change that a client causes is logged once, with the client's address, port and client id."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch
from builders.requests import RawPeer
from builders.served import ServedBroker, produce, serve
from millstream.broker.net.client_info import ClientInfo
from millstream.process.client_events import CLIENT_ID_CHARACTERS_MAX
from millstream.process.logs import fields_of
from millstream.storage.store import FlushPolicy

GROUP_KIND, TOPIC_KIND = 32, 2


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [fields_of(record) for record in caplog.records if record.msg == event]


def check_line(caplog: pytest.LogCaptureFixture, peer: RawPeer, event: str, **fields: object) -> None:
    host, port = peer.transport.get_extra_info("sockname")[:2]
    client = {"peer": f"{host}:{port}", "client_id": "test"}
    assert lines(caplog, event) == [{**client, **fields}]


def run(directory: Path, caplog: pytest.LogCaptureFixture, story: Callable[[ServedBroker, RawPeer], Any]) -> None:
    async def whole(broker: ServedBroker) -> None:
        peer = await broker.peer()
        caplog.clear()
        await story(broker, peer)

    with caplog.at_level(logging.INFO):
        serve(directory, whole, policy=FlushPolicy.ALWAYS)


async def create(peer: RawPeer, name: str, validate_only: bool = False) -> None:
    configs = [{"name": "retention.ms", "value": "5000"}]
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": configs}
    await peer.ask("CreateTopics", 5, {"topics": [topic], "timeout_ms": 1000, "validate_only": validate_only})


async def alter(peer: RawPeer, kind: int, name: str, setting: str, value: str) -> None:
    configs = [{"name": setting, "config_operation": 0, "value": value}]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    await peer.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})


def test_a_created_topic_is_logged_and_a_validated_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(broker: ServedBroker, peer: RawPeer) -> None:
        await create(peer, "validated", validate_only=True)
        await create(peer, "orders")
        check_line(caplog, peer, "topic created", topic="orders", partitions=2, settings="retention.ms=5000")

    run(tmp_path, caplog, story)


def test_altered_settings_of_a_topic_are_logged_with_those_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: ServedBroker, peer: RawPeer) -> None:
        await create(peer, "orders")
        await alter(peer, TOPIC_KIND, "orders", "retention.ms", "6000")
        await alter(peer, TOPIC_KIND, "orders", "retention.ms", "6000")
        settings = {"settings": "retention.ms=6000", "settings_before": "retention.ms=5000"}
        check_line(caplog, peer, "topic altered", topic="orders", **settings)

    run(tmp_path, caplog, story)


def test_added_partitions_and_a_deleted_topic_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(broker: ServedBroker, peer: RawPeer) -> None:
        await create(peer, "orders")
        topics = [{"name": "orders", "count": 5, "assignments": None}]
        await peer.ask("CreatePartitions", 1, {"topics": topics, "timeout_ms": 1000, "validate_only": False})
        await peer.ask("DeleteTopics", 5, {"topic_names": ["orders"], "timeout_ms": 1000})
        check_line(caplog, peer, "partitions added", topic="orders", partitions=5, added=3)
        check_line(caplog, peer, "topic deleted", topic="orders", partitions=5)

    run(tmp_path, caplog, story)


def test_deleted_records_are_logged_once_with_the_offsets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(broker: ServedBroker, peer: RawPeer) -> None:
        await broker.topic()
        await produce(peer, "events", batch(b"a", b"b", b"c"))
        partition = {"partition_index": 0, "offset": 2}
        fields = {"topics": [{"name": "events", "partitions": [partition]}], "timeout_ms": 1000}
        await peer.ask("DeleteRecords", 2, fields)
        await peer.ask("DeleteRecords", 2, fields)
        offsets = {"start_offset": 2, "start_offset_before": 0}
        check_line(caplog, peer, "records deleted", topic="events", partition=0, **offsets)

    run(tmp_path, caplog, story)


def test_altered_settings_of_a_group_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(broker: ServedBroker, peer: RawPeer) -> None:
        await alter(peer, GROUP_KIND, "billing", "consumer.session.timeout.ms", "50000")
        check_line(caplog, peer, "group altered", group="billing", settings="consumer.session.timeout.ms=50000")

    run(tmp_path, caplog, story)


def test_a_topic_that_no_client_created_is_logged_without_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(broker: ServedBroker, peer: RawPeer) -> None:
        await broker.partitions.create("internal")
        assert lines(caplog, "topic created")[0].keys() == {"topic", "partitions", "settings"}

    run(tmp_path, caplog, story)


def test_a_client_that_is_cut_off_is_logged_with_port_and_client_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: ServedBroker, peer: RawPeer) -> None:
        await create(peer, "orders")
        host, port = peer.transport.get_extra_info("sockname")[:2]
        peer.send(b"\x00\x00\x00\x02ab")
        await peer.lost()
        (line,) = lines(caplog, "connection cut off: bad request")
        assert (line["peer"], line["client_id"]) == (f"{host}:{port}", "test")

    run(tmp_path, caplog, story)


@pytest.mark.parametrize(
    ("sent", "known"),
    [(b"app", "app"), (b"", ""), (b"\xff", "\ufffd"), (b"x" * 10_000, "x" * CLIENT_ID_CHARACTERS_MAX)],
)
def test_the_client_id_of_a_connection_is_bounded_and_readable(sent: bytes, known: str) -> None:
    client = ClientInfo()
    client.connected("::1", 7)
    client.introduced(memoryview(sent))
    assert (client.client_id, client.endpoint) == (known, "[::1]:7")


async def commit(peer: RawPeer, offset: int) -> None:
    rows = [{"partition_index": number, "committed_offset": offset, "committed_metadata": ""} for number in (0, 1)]
    topics = [{"name": "orders", "partitions": [{**row, "committed_leader_epoch": -1} for row in rows]}]
    group = {"group_id": "readers", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    await peer.ask("OffsetCommit", 8, {**group, "topics": topics})


def test_reset_and_deleted_offsets_and_deleted_groups_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: ServedBroker, peer: RawPeer) -> None:
        await create(peer, "orders")
        for offset in (5, 7, 3):
            await commit(peer, offset)
        check_line(caplog, peer, "offsets reset", group="readers", partitions=2)
        topics = [{"name": "orders", "partitions": [{"partition_index": 1}]}]
        await peer.ask("OffsetDelete", 0, {"group_id": "readers", "topics": topics})
        check_line(caplog, peer, "offsets deleted", group="readers", partitions=1)
        for _ in range(2):
            await peer.ask("DeleteGroups", 2, {"groups_names": ["readers"]})
        check_line(caplog, peer, "group deleted", group="readers")

    run(tmp_path, caplog, story)
