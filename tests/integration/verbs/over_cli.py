"""Implements the verbs with the command line: `millstream … --json`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from integration.verbs.shapes import Made, PartitionRow, Place, Read, Refused, Stored, StoredOnce, TopicRow
from millstream.cli.app import app


class OverCli:
    """Runs command lines in this process, because starting Python for each takes too long."""

    def __init__(self, bootstrap: str, data_dir: Path) -> None:
        self._runner = CliRunner(env={"MILLSTREAM_BOOTSTRAP": bootstrap, "MILLSTREAM_CLIENT_CONFIG": "/nowhere/at/all"})
        self._data = ("--data", str(data_dir))

    def close(self) -> None:
        """Do nothing: no resource outlives a command."""

    def _lines(self, *arguments: object) -> list[Any]:
        ended = self._runner.invoke(app, [*map(str, arguments), "--json"])
        if ended.exit_code:
            try:
                told = json.loads(ended.stderr)
            except ValueError:
                raise AssertionError(f"{ended.stderr}{ended.exception!r}") from ended.exception
            raise Refused(told["error"], text=told["message"])
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def _ask(self, *arguments: object) -> Any:
        (document,) = self._lines(*arguments)
        return document

    # Topics.

    def list_topics(self, after: str, limit: int) -> list[TopicRow]:
        rows = self._ask("topic", "list", "--after", after, "--limit", limit)["topics"]
        return [TopicRow(row["name"], row["partitions"], row["messages"]) for row in rows]

    def create_topic(self, name: str, partitions: int | None = None, settings: Mapping[str, str] | None = None) -> str:
        flags: list[object] = [] if partitions is None else [f"--partitions={partitions}"]
        flags += [f"--setting={key}={value}" for key, value in (settings or {}).items()]
        made: str = self._ask("topic", "create", name, *flags)["id"]
        return made

    def add_partitions(self, topic: str, total: int) -> None:
        self._ask("topic", "alter", topic, "--partitions", total)

    def describe_topic(self, topic: str) -> list[PartitionRow]:
        rows = self._ask("topic", "describe", topic)["partitions"]
        return [
            PartitionRow(
                row["partition"],
                row["leader"],
                tuple(row["replicas"]),
                tuple(row["in_sync"]),
                row["first_offset"],
                row["next_offset"],
            )
            for row in rows
        ]

    def delete_topic(self, topic: str) -> None:
        self._ask("topic", "delete", topic, "--yes")

    def delete_messages(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        rows = self._ask("topic", "empty", topic, "--yes")["partitions"]
        return {row["partition"]: row["first_offset"] for row in rows}

    def topic_settings(self, topic: str) -> dict[str, str | None]:
        return self._settings("topic", topic)

    def change_topic_settings(self, topic: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        self._change("topic", topic, chosen, unset)

    def _settings(self, kind: str, name: object) -> dict[str, str | None]:
        return {row["name"]: row["value"] for row in self._ask("config", "list", kind, name)}

    def _change(self, kind: str, name: object, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        if chosen:
            self._ask("config", "set", kind, name, *(f"{key}={value}" for key, value in chosen.items()))
        if unset:
            self._ask("config", "unset", kind, name, *unset)

    # Writing.

    def put(self, topic: str, value: str, key: str | None = None, partition: int | None = None) -> Stored:
        flags: list[object] = [] if key is None else ["--key", key]
        flags += [] if partition is None else ["--partition", partition]
        return self._put(topic, value, *flags)

    def put_many(self, topic: str, values: Sequence[str]) -> list[Stored]:
        rows = self._lines("put", topic, *values)
        return [Stored(row["partition"], row["offset"]) for row in rows]

    def put_by_hash(self, topic: str, value: str, hash: int) -> Stored:
        return self._put(topic, value, "--hash", hash)

    def put_once(self, topic: str, value: str, message_id: str) -> StoredOnce:
        place = self._ask("put", topic, value, "--header", f"millstream.id={message_id}")
        return StoredOnce(place["partition"], place["offset"], place["duplicate"])

    def put_tombstone(self, topic: str, key: str | None) -> Stored:
        flags: list[object] = [] if key is None else ["--key", key]
        place = self._ask("put", topic, "--tombstone", *flags)
        return Stored(place["partition"], place["offset"])

    def _put(self, topic: str, value: str, *flags: object) -> Stored:
        place = self._ask("put", topic, value, *flags)
        return Stored(place["partition"], place["offset"])

    # Reading.

    def get(
        self, topic: str, partition: int, offset: int | str, max_messages: int = 500, wait_s: float = 0
    ) -> list[Read]:
        rows = self._lines("get", topic, "--partition", partition, "--from", offset, "--count", max_messages)
        return _read(rows)

    def long_poll(self, topic: str, offset: int) -> list[Read]:
        return _read(self._lines("get", topic, "--partition", 0, "--from", offset, "--follow", "--count", 1))

    def poll(self, topic: str) -> tuple[list[Read], int]:
        found = _read(self._lines("get", topic))
        return found, found[-1].offset + 1

    def subscribe(self, topic: str, count: int, start: str | None = None) -> list[Read]:
        return _read(self._lines("tail", topic, *_from(start), "--limit", count))

    # Groups.

    def read_in_group(self, topic: str, group: str, count: int, start: str | None = None) -> list[str]:
        rows = self._lines("tail", topic, "--group", group, *_from(start), "--limit", count)
        return [row["value"] for row in rows]

    def list_groups(self) -> dict[str, str]:
        return {row["group"]: row["state"] for row in self._ask("group", "list")}

    def describe_group(self, group: str) -> tuple[str, list[str]]:
        found = self._ask("group", "describe", group)
        return found["state"], sorted(topic for member in found["members"] for topic in member["topics"])

    def delete_group(self, group: str) -> None:
        self._ask("group", "delete", group, "--yes")

    def group_lag(self, group: str) -> dict[Place, int]:
        rows = self._ask("group", "describe", group)["partitions"]
        return {Place(row["topic"], row["partition"]): row["lag"] for row in rows}

    def group_offsets(self, group: str) -> dict[Place, int]:
        rows = self._ask("group", "describe", group)["partitions"]
        return {Place(row["topic"], row["partition"]): row["committed"] for row in rows if row["committed"] is not None}

    def commit_offsets(self, group: str, topic: str, offset: int) -> None:
        self._ask("group", "reset", group, "--topic", topic, "--to", offset, "--yes")

    def reset_offsets(self, group: str, topic: str, to: str) -> dict[int, int]:
        rows = self._ask("group", "reset", group, "--topic", topic, "--to", to, "--yes")["partitions"]
        return {row["partition"]: row["to"] for row in rows}

    def delete_offsets(self, group: str, topic: str) -> None:
        self._ask("group", "forget", group, "--topic", topic, "--yes")

    def group_settings(self, group: str) -> dict[str, str | None]:
        return self._settings("group", group)

    def change_group_settings(self, group: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        self._change("group", group, chosen, unset)

    # The cluster.

    def create_cluster(self, name: str, brokers: int, retention: str | None = None) -> Made:
        flags = [] if retention is None else ["--retention", retention]
        return _made(self._ask("cluster", "create", name, "--brokers", brokers, *flags, *self._data))

    def list_clusters(self) -> list[str]:
        return ["default", *(row["name"] for row in self._ask("cluster", "list", *self._data))]

    def stop_cluster(self, name: str) -> Made:
        return _made(self._ask("cluster", "stop", name, *self._data))

    def start_cluster(self, name: str) -> Made:
        return _made(self._ask("cluster", "start", name, *self._data))

    def delete_cluster(self, name: str) -> None:
        self._ask("cluster", "delete", name, "--yes", *self._data)

    def service_map(self, topics: Sequence[str]) -> dict[Place, int]:
        rows = self._ask("cluster", "services", *topics)["leaders"]
        return {Place(row["topic"], row["partition"]): row["leader"] for row in rows}

    def backup_map(self, topics: Sequence[str]) -> dict[Place, int]:
        rows = self._ask("cluster", "backups", *topics)["partitions"]
        return {Place(row["topic"], row["partition"]): row["end_offset"] for row in rows}

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        found = self._ask("sql", sql)
        return found["columns"], found["rows"]

    def info(self) -> tuple[str, str]:
        broker = self._ask("info")["broker"]
        return broker["version"], broker["cluster_id"]

    def describe_cluster(self) -> dict[int, int]:
        return {row["node_id"]: row["port"] for row in self._ask("cluster", "info")["brokers"]}

    def broker_settings(self, broker: int) -> dict[str, str | None]:
        return {row["name"]: row["value"] for row in self._ask("config", "describe", "broker", broker)}

    def change_broker_settings(self, broker: int, chosen: Mapping[str, str]) -> None:
        self._change("broker", broker, chosen)

    def dump(self, topic: str) -> list[Read]:
        return _read(self._lines("dump", topic))


def _from(start: str | None) -> list[str]:
    return [] if start is None else ["--from", start]


def _read(rows: Sequence[Mapping[str, Any]]) -> list[Read]:
    return [Read(row["offset"], row["value"]) for row in rows]


def _made(document: Mapping[str, Any]) -> Made:
    return Made(document["name"], len(document["brokers"]), document["is_stopped"])
