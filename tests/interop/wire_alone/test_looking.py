"""Tests the description of a cluster: service map, backup map, and SQL queries of its catalog."""

import json
from collections.abc import Iterator

import pytest

from interop.wire_alone.calls import BACKUP_MAP, QUERY, SERVICE_MAP, Call
from interop.wire_alone.client import Connection, Fields

PARTITIONS = 5
INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION = 42, 3


@pytest.fixture
def connection(millstream_bootstrap: str) -> Iterator[Connection]:
    with Connection(int(millstream_bootstrap.rpartition(":")[2])) as connection:
        yield connection


def pages(connection: Connection, call: Call, topics: list[str], partitions_max: int) -> Iterator[Fields]:
    """Yield the pages of an answer, each starting at the cursor of the last one."""
    cursor = None
    while True:
        answer = connection.ask(call, topics=topics, partitions_max=partitions_max, cursor=cursor)
        assert answer["error_code"] == 0, answer
        yield answer
        cursor = answer["next_cursor"]
        if cursor is None:
            return


@pytest.mark.parametrize("partitions_max", [1, 2, 100])
@pytest.mark.parametrize("call", [SERVICE_MAP, BACKUP_MAP], ids=["service map", "backup map"])
def test_pages_list_every_partition_once(call: Call, partitions_max: int, connection: Connection) -> None:
    topic = connection.create_topic(PARTITIONS)
    found = [
        (row["partition"], row["leader_id"])
        for page in pages(connection, call, [topic], partitions_max)
        for each in page["topics"]
        for row in each["partitions"]
    ]
    assert found == [(number, 1) for number in range(PARTITIONS)]


def test_the_service_map_has_the_address_of_this_listener(connection: Connection, millstream_bootstrap: str) -> None:
    answer = connection.ask(SERVICE_MAP, topics=[], partitions_max=1, cursor=None)
    (kafka,) = [service for service in answer["services"] if service["kind"] == "kafka"]
    assert f"{kafka['host']}:{kafka['port']}" == millstream_bootstrap
    assert answer["topics"] == []


def test_the_backup_map_of_a_single_broker_has_no_followers(connection: Connection) -> None:
    topic = connection.create_topic()
    connection.put(topic, b"a", b"b")
    answer = connection.ask(BACKUP_MAP, topics=[topic], partitions_max=100, cursor=None)
    (row,) = answer["topics"][0]["partitions"]
    assert (row["end_offset"], row["high_watermark"], row["followers"]) == (2, 2, [])
    assert answer["note"]


@pytest.mark.parametrize("call", [SERVICE_MAP, BACKUP_MAP], ids=["service map", "backup map"])
def test_a_missing_topic_is_reported(call: Call, connection: Connection) -> None:
    answer = connection.ask(call, topics=["nowhere"], partitions_max=100, cursor=None)
    assert [(each["name"], each["error_code"]) for each in answer["topics"]] == [
        ("nowhere", UNKNOWN_TOPIC_OR_PARTITION)
    ]


def test_the_catalog_can_be_queried_with_sql_and_not_written(connection: Connection) -> None:
    topic = connection.create_topic(PARTITIONS)
    answer = connection.ask(QUERY, sql=f"select name from topics where name = '{topic}'", rows_max=10, timeout_ms=5000)
    assert (answer["columns"], [json.loads(row) for row in answer["rows"]]) == (["name"], [[topic]])
    refused = connection.ask(QUERY, sql="delete from topics", rows_max=10, timeout_ms=5000)
    assert refused["error_code"] == INVALID_REQUEST
