"""Tests the service map and the backup map."""

from pathlib import Path
from typing import Any

import pytest

from builders.partitions import CLUSTER, HOST, NODE_ID
from builders.served import ServedBroker, produce, serve
from millstream.model.errors import ErrorCode
from millstream.model.ids import BrokerId
from millstream.model.services import NO_PORT, Service

MAPS = ("ServiceMap", "BackupMap")


def places(answer: dict[str, Any]) -> list[tuple[str, int]]:
    return [(topic["name"], row["partition"]) for topic in answer["topics"] for row in topic["partitions"]]


def test_the_service_map_lists_services_that_start_later() -> None:
    services = [Service("operator", BrokerId(NODE_ID), HOST, 9644, "metrics")]

    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        answer = await peer.ask("ServiceMap", 0, {"topics": []})
        assert (answer["cluster_id"], answer["controller_id"], answer["topics"]) == (CLUSTER, NODE_ID, [])
        assert [(row["kind"], row["port"]) for row in answer["services"]] == [
            ("kafka", broker.port),
            ("operator", 9644),
        ]
        services.append(Service("pipeline", BrokerId(-1), "spark", NO_PORT, "archive of orders"))
        answer = await peer.ask("ServiceMap", 0, {"topics": []})
        assert answer["services"][-1] == {
            "kind": "pipeline",
            "node_id": -1,
            "host": "spark",
            "port": NO_PORT,
            "detail": "archive of orders",
        }

    serve(Path("/nowhere"), story, services=services)


def test_maps_list_leaders_and_a_single_broker_has_no_backups(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        peer = await broker.peer()
        await produce(peer, "events", partition=1)
        led = await peer.ask("ServiceMap", 0, {"topics": ["events"]})
        assert [
            (row["partition"], row["leader_id"], row["leader_epoch"]) for row in led["topics"][0]["partitions"]
        ] == [(0, NODE_ID, 0), (1, NODE_ID, 0)]
        backed = await peer.ask("BackupMap", 0)
        assert "no partition has a backup" in backed["note"]
        rows = backed["topics"][0]["partitions"]
        assert [(row["leader_id"], row["end_offset"], row["high_watermark"]) for row in rows] == [
            (NODE_ID, 0, 0),
            (NODE_ID, 1, 1),
        ]
        assert [row["followers"] for row in rows] == [[], []]

    serve(tmp_path, story)


@pytest.mark.parametrize("api", MAPS)
@pytest.mark.parametrize("partitions_max", [1, 3, 4, 100, -1])
def test_many_partitions_are_listed_page_by_page(api: str, partitions_max: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        for name, partitions in (("a", 3), ("b", 1), ("c", 5)):
            await broker.topic(name, partitions)
        peer = await broker.peer()
        found: list[tuple[str, int]] = []
        cursor = None
        while True:
            answer = await peer.ask(api, 0, {"partitions_max": partitions_max, "cursor": cursor})
            page = places(answer)
            assert 0 < len(page) <= max(1, partitions_max)
            found += page
            cursor = answer["next_cursor"]
            if cursor is None:
                break
        assert found == [(name, number) for name, count in (("a", 3), ("b", 1), ("c", 5)) for number in range(count)]

    serve(tmp_path, story)


@pytest.mark.parametrize("api", MAPS)
def test_missing_topics_and_invalid_cursors_are_refused(api: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        answer = await peer.ask(api, 0, {"topics": ["missing", "a/b", "events"]})
        assert [(row["name"], ErrorCode.of(row["error_code"])) for row in answer["topics"]] == [
            ("a/b", ErrorCode.INVALID_TOPIC),
            ("events", ErrorCode.NONE),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        refused = await peer.ask(api, 0, {"cursor": {"topic_name": "events", "partition_index": -1}})
        assert ErrorCode.of(refused["error_code"]) is ErrorCode.INVALID_REQUEST

    serve(tmp_path, story)
