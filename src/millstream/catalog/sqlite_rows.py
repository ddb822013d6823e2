"""Reads and writes topics, placements and settings as rows of the SQLite catalog."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from millstream.catalog.catalog import Placement, Topic, TopicState, readable_time, time_ms, unknown_topic
from millstream.model.ids import BrokerId, TopicId
from millstream.model.names import PartitionKey

PLACEMENT_COLUMNS = "topic_id, partition, leader, leader_epoch, partition_epoch, replicas, in_sync"


def insert_topic(sql: sqlite3.Connection, topic: Topic) -> None:
    sql.execute(
        "INSERT INTO topics (topic_id, name, partitions, state, created) VALUES (?, ?, ?, ?, ?)",
        (str(topic.topic_id), topic.name, topic.partitions, topic.state.value, readable_time(topic.created_ms)),
    )
    insert_settings(sql, topic.topic_id, topic.settings)


def insert_settings(sql: sqlite3.Connection, topic_id: TopicId, settings: Mapping[str, str]) -> None:
    sql.executemany(
        "INSERT INTO topic_settings (topic_id, name, value) VALUES (?, ?, ?)",
        [(str(topic_id), name, value) for name, value in settings.items()],
    )


def insert_placements(sql: sqlite3.Connection, placements: Iterable[Placement]) -> None:
    sql.executemany(
        f"INSERT INTO partitions ({PLACEMENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (str(p.key.topic_id), p.key.partition, *p[1:4], nodes_text(p.replicas), nodes_text(p.in_sync))
            for p in placements
        ],
    )


def read_topics(sql: sqlite3.Connection) -> list[Topic]:
    settings: dict[str, dict[str, str]] = {}
    for topic_id, name, value in sql.execute("SELECT topic_id, name, value FROM topic_settings ORDER BY name"):
        settings.setdefault(topic_id, {})[name] = value
    held = dict(sql.execute("SELECT topic_id, count(*) FROM partitions GROUP BY topic_id"))
    return [
        Topic(
            name,
            TopicId(UUID(topic_id)),
            count,
            settings.get(topic_id, {}),
            TopicState(state),
            time_ms(created),
            growing_to if (growing_to := held.get(topic_id, 0)) > count else 0,
        )
        for name, topic_id, count, state, created in sql.execute(
            "SELECT name, topic_id, partitions, state, created FROM topics ORDER BY rowid"
        )
    ]


def read_group_settings(sql: sqlite3.Connection) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {}
    for group_id, name, value in sql.execute(
        "SELECT group_id, name, value FROM group_settings ORDER BY group_id, name"
    ):
        settings.setdefault(group_id, {})[name] = value
    return settings


def replace_group_settings(sql: sqlite3.Connection, *, group_id: str, settings: Mapping[str, str]) -> None:
    sql.execute("DELETE FROM group_settings WHERE group_id = ?", (group_id,))
    sql.executemany(
        "INSERT INTO group_settings (group_id, name, value) VALUES (?, ?, ?)",
        [(group_id, name, value) for name, value in settings.items()],
    )


def read_placement(row: Sequence[Any]) -> Placement:
    topic_id, number, leader, leader_epoch, partition_epoch, replicas, in_sync = row
    key = PartitionKey(TopicId(UUID(topic_id)), number)
    return Placement(
        key, leader, leader_epoch, partition_epoch, tuple(json.loads(replicas)), tuple(json.loads(in_sync))
    )


def nodes_text(nodes: Sequence[BrokerId]) -> str:
    return json.dumps(list(nodes))


def ready_partitions(sql: sqlite3.Connection, topic_id: TopicId) -> int:
    row = sql.execute(
        "SELECT partitions FROM topics WHERE topic_id = ? AND state = 'ready'", (str(topic_id),)
    ).fetchone()
    if row is None:
        raise unknown_topic(topic_id)
    return int(row[0])
