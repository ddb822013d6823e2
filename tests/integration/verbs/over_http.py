"""Implements the verbs with plain HTTP requests."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from integration.verbs.shapes import InFlight, Made, PartitionRow, Place, Read, Refused, Stored, StoredOnce, TopicRow
from millstream.sdk.iterating.requests import GroupIterator


class OverHttp:
    """Sends requests to one gateway. Each request that can name a cluster names `cluster`."""

    def __init__(self, port: int) -> None:
        self._web = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=90)
        self.cluster = "default"

    def close(self) -> None:
        self._web.close()

    def _ask(self, method: str, path: str, body: object = None, *, named: bool = True, **parameters: Any) -> Any:
        if named:
            parameters["cluster"] = self.cluster
        answer = self._web.request(method, path, json=body, params=parameters)
        return _checked(answer)

    # Topics.

    def list_topics(self, after: str, limit: int) -> list[TopicRow]:
        rows = self._ask("GET", "/v1/topics", after=after, limit=limit)["topics"]
        return [TopicRow(row["name"], row["partitions"], row["messages"]) for row in rows]

    def create_topic(self, name: str, partitions: int | None = None, settings: Mapping[str, str] | None = None) -> str:
        body = {"name": name, "cluster": self.cluster, "partitions": partitions, "settings": settings or {}}
        made: str = self._ask("POST", "/topic", body, named=False)["id"]
        return made

    def add_partitions(self, topic: str, total: int) -> None:
        self._ask("POST", f"/v1/topics/{topic}/partitions", {"total": total})

    def describe_topic(self, topic: str) -> list[PartitionRow]:
        rows = self._ask("GET", f"/v1/topics/{topic}")["partitions"]
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
        self._ask("DELETE", f"/v1/topics/{topic}")

    def delete_messages(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        body = {"before": {str(partition): offset for partition, offset in before.items()}}
        found = self._ask("DELETE", f"/v1/topics/{topic}/messages", body)["first_offsets"]
        return {int(partition): offset for partition, offset in found.items()}

    def topic_settings(self, topic: str) -> dict[str, str | None]:
        return self._settings(f"/v1/topics/{topic}/settings")

    def change_topic_settings(self, topic: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        self._ask("PATCH", f"/v1/topics/{topic}/settings", {"set": chosen, "unset": unset})

    def _settings(self, path: str) -> dict[str, str | None]:
        return {row["name"]: row["value"] for row in self._ask("GET", path)["settings"] if row["own"]}

    # Writing.

    def put(self, topic: str, value: str | None, key: str | None = None, partition: int | None = None) -> Stored:
        event = {"topic": topic, "key": key, "partition": partition}
        return self._put(event if value is None else {**event, "value": value})

    def put_many(self, topic: str, values: Sequence[str]) -> list[Stored]:
        body = {"topic": topic, "cluster": self.cluster, "events": [{"value": value} for value in values]}
        rows = self._ask("POST", "/events", body, named=False)["events"]
        return [Stored(row["partition"], row["offset"]) for row in rows]

    def put_by_hash(self, topic: str, value: str, hash: int) -> Stored:
        return self._put({"topic": topic, "value": value, "hash": hash})

    def put_once(self, topic: str, value: str, message_id: str) -> StoredOnce:
        event = {"topic": topic, "value": value, "message_id": message_id, "cluster": self.cluster}
        place = self._ask("POST", "/events", event, named=False)
        return StoredOnce(place["partition"], place["offset"], place["duplicate"])

    def put_tombstone(self, topic: str, key: str | None) -> Stored:
        return self._put({"topic": topic, "key": key, "value": None})

    def _put(self, event: dict[str, Any]) -> Stored:
        place = self._ask("POST", "/events", {**event, "cluster": self.cluster}, named=False)
        return Stored(place["partition"], place["offset"])

    # Reading.

    def get(
        self, topic: str, partition: int, offset: int | str, max_messages: int = 500, wait_s: float | str = 0
    ) -> list[Read]:
        found = self._ask(
            "GET", "/events", topic=topic, partition=partition, offset=offset, max_messages=max_messages, wait=wait_s
        )
        return _read(found["events"])

    def long_poll(self, topic: str, offset: int) -> list[Read]:
        return self.get(topic, 0, offset, wait_s=60)

    def poll(self, topic: str) -> tuple[list[Read], int]:
        found = self._ask("GET", "/events", topic=topic, partition=0)
        return _read(found["events"]), int(found["next"])

    def find_offsets(self, topic: str, at: str | int, *, in_wrong_unit: bool = False) -> dict[int, int]:
        at = at // 1000 if isinstance(at, int) and in_wrong_unit else at
        found = self._ask("GET", f"/v1/topics/{topic}/offsets", at=at)["partitions"]
        return {int(partition): offset for partition, offset in found.items()}

    def subscribe(self, topic: str, count: int, start: str | None = None) -> list[Read]:
        found: list[Any] = []
        parameters = {"topic": topic, "follow": "true", "cluster": self.cluster}
        parameters |= {} if start is None else {"offset": start}
        with self._web.stream(
            "GET", "/events", params=parameters, headers={"Accept": "application/x-ndjson"}
        ) as answer:
            if answer.is_error:
                answer.read()
                _checked(answer)
            for line in answer.iter_lines():
                found += [httpx.Response(200, content=line).json()] if line else []
                if len(found) == count:
                    break
        return _read(found)

    # Groups.

    def read_in_group(self, topic: str, group: str, count: int, start: str | None = None) -> list[str]:
        found: list[str] = []
        who: dict[str, Any] = {"group": group, "consumer": "http"}
        place: dict[str, Any] = {} if start is None else {"offset": start}
        while len(found) < count:
            events = self._ask("GET", "/events", topic=topic, wait=60, **place, **who)["events"]
            found += [event["value"] for event in events]
            self._ask("POST", "/offset", {**who, "cluster": self.cluster}, named=False)
        return found

    def list_groups(self) -> dict[str, str]:
        return {row["group"]: row["state"] for row in self._ask("GET", "/v1/groups", limit=1000)["groups"]}

    def describe_group(self, group: str) -> tuple[str, list[str]]:
        found = self._ask("GET", f"/v1/groups/{group}")
        return found["state"], sorted(topic for member in found["members"] for topic in member["topics"])

    def delete_group(self, group: str) -> None:
        self._ask("DELETE", f"/v1/groups/{group}")

    def group_lag(self, group: str) -> dict[Place, int]:
        rows = self._ask("GET", f"/v1/groups/{group}")["partitions"]
        return {Place(row["topic"], row["partition"]): row["lag"] for row in rows}

    def group_offsets(self, group: str) -> dict[Place, int]:
        rows = self._ask("GET", f"/v1/groups/{group}/offsets")["offsets"]
        return {Place(row["topic"], row["partition"]): row["offset"] for row in rows}

    def commit_offsets(self, group: str, topic: str, offset: int) -> None:
        rows = [{"topic": topic, "partition": 0, "offset": offset}]
        self._ask("PUT", f"/v1/groups/{group}/offsets", {"offsets": rows})

    def reset_offsets(self, group: str, topic: str, to: str) -> dict[int, int]:
        found = self._ask("POST", f"/v1/groups/{group}/offsets", {"topic": topic, "offset": to})["offsets"]
        return {int(partition): offset for partition, offset in found.items()}

    def delete_offsets(self, group: str, topic: str) -> None:
        self._ask("DELETE", f"/v1/groups/{group}/offsets", topic=topic)

    def group_settings(self, group: str) -> dict[str, str | None]:
        return self._settings(f"/v1/groups/{group}/settings")

    def change_group_settings(self, group: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        self._ask("PATCH", f"/v1/groups/{group}/settings", {"set": chosen, "unset": unset})

    # Iterators.

    def join_group(self, group: str, client_id: str) -> list[Place]:
        return _owned(self._ask("PUT", _consumer(group, client_id)))

    def heartbeat(self, group: str, client_id: str) -> list[Place]:
        return _owned(self._ask("POST", f"{_consumer(group, client_id)}/heartbeat"))

    def leave_group(self, group: str, client_id: str) -> None:
        self._ask("DELETE", _consumer(group, client_id))

    def get_iterator(self, group: str, client_id: str, topic: str, partition: int = 0) -> Place:
        body = {"topic": topic, "partition": partition}
        found = self._ask("POST", f"{_consumer(group, client_id)}/iterators", body)
        return Place(found["topic"], found["partition"])

    def list_iterators(self, group: str) -> list[InFlight]:
        rows = self._ask("GET", f"/v1/groups/{group}/iterators")["iterators"]
        return [InFlight(row["consumer"], row["topic"], row["partition"]) for row in rows]

    def read_iterator(self, iterator: GroupIterator) -> list[Read]:
        body = {"iterator": _iterator_body(iterator), "wait": 0, "cluster": self.cluster}
        return _read(self._ask("POST", "/v1/iterators/read", body, named=False)["events"])

    def deliver_iterator(self, group: str, client_id: str, iterator: GroupIterator, count: int) -> None:
        self._ask(
            "POST", f"{_consumer(group, client_id)}/deliver", {"iterator": _iterator_body(iterator), "count": count}
        )

    def commit_iterator(self, group: str, client_id: str, iterator: GroupIterator, count: int | None) -> int:
        read = {"delivered": True} if count is None else {"count": count}
        found = self._ask(
            "POST", f"{_consumer(group, client_id)}/commit", {"iterator": _iterator_body(iterator), **read}
        )
        position: int = found["position"]
        return position

    # The cluster.

    def create_cluster(self, name: str, brokers: int, retention: str | None = None) -> Made:
        body = {"name": name, "brokers": brokers, "retention_ms": retention}
        return _made(self._ask("POST", "/cluster", body, named=False))

    def list_clusters(self) -> list[str]:
        names: list[str] = self._ask("GET", "/v1/clusters", named=False)["serves"]
        return names

    def stop_cluster(self, name: str) -> Made:
        return _made(self._ask("POST", f"/v1/clusters/{name}/stop", named=False))

    def start_cluster(self, name: str) -> Made:
        return _made(self._ask("POST", f"/v1/clusters/{name}/start", named=False))

    def delete_cluster(self, name: str) -> None:
        self._ask("DELETE", f"/v1/clusters/{name}", named=False)

    def service_map(self, topics: Sequence[str]) -> dict[Place, int]:
        rows = self._ask("GET", "/v1/service-map", topics=",".join(topics))["leaders"]
        return {Place(row["topic"], row["partition"]): row["leader"] for row in rows}

    def backup_map(self, topics: Sequence[str]) -> dict[Place, int]:
        rows = self._ask("GET", "/v1/backup-map", topics=",".join(topics))["partitions"]
        return {Place(row["topic"], row["partition"]): row["end_offset"] for row in rows}

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        found = self._ask("POST", "/v1/query", {"sql": sql})
        return found["columns"], found["rows"]

    def info(self) -> tuple[str, str]:
        (broker,) = self._ask("GET", "/v1/info")["brokers"]
        return broker["version"], broker["cluster_id"]

    def describe_cluster(self) -> dict[int, int]:
        return {row["broker"]: row["port"] for row in self._ask("GET", "/v1/cluster")["brokers"]}

    def broker_settings(self, broker: int) -> dict[str, str | None]:
        rows = self._ask("GET", f"/v1/brokers/{broker}/settings")["settings"]
        return {row["name"]: row["value"] for row in rows}

    def change_broker_settings(self, broker: int, chosen: Mapping[str, str]) -> None:
        self._ask("PATCH", f"/v1/brokers/{broker}/settings", {"set": chosen})


def _checked(answer: httpx.Response) -> Any:
    """Return the answer's JSON, or raise Refused for a problem."""
    if answer.is_error:
        problem = answer.json()
        raise Refused(problem["code"], problem.get("field"), problem["detail"], problem["title"])
    return answer.json() if answer.content else None


def _read(events: Sequence[Mapping[str, Any]]) -> list[Read]:
    return [Read(event["offset"], event["value"]) for event in events]


def _consumer(group: str, client_id: str) -> str:
    return f"/v1/groups/{group}/consumers/{client_id}"


def _owned(document: Mapping[str, Any]) -> list[Place]:
    return [Place(row["topic"], row["partition"]) for row in document["owned"]]


def _iterator_body(iterator: GroupIterator) -> dict[str, Any]:
    fields = iterator._asdict()
    server = fields.pop("server")
    return {**fields, "token": b64encode(iterator.token).decode(), "host": server.host, "port": server.port}


def _made(document: Mapping[str, Any]) -> Made:
    return Made(document["name"], len(document["brokers"]), document["stopped"])
