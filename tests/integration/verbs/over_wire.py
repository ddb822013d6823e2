"""Implements the verbs with frames of the wire protocol on a socket."""

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import millstream
from builders.requests import request_frame
from integration.verbs.shapes import InFlight, PartitionRow, Place, Read, Refused, Stored, StoredOnce, TopicRow
from interop.wire_alone.batches import batch, stored, tombstone
from millstream.model.errors import ErrorCode
from millstream.sdk.iterating.requests import GroupIterator
from millstream.wire.framing import SIZE, read_correlation_id, read_response_header
from millstream.wire.messages import read_response

_TIMES = {"beginning": -2, "latest": -1}
_TOPIC, _BROKER, _GROUP = 2, 4, 32
_OWN_SOURCES = {_TOPIC: 1, _BROKER: 2, _GROUP: 8}
_SET, _UNSET = 0, 1


class OverWire:
    """Sends requests on connections without a role, one at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=90)
        self._number = 0

    def close(self) -> None:
        self._socket.close()

    def _send(self, api: str, version: int, fields: dict[str, Any]) -> int:
        self._number += 1
        self._socket.sendall(request_frame(api, version, fields, correlation_id=self._number))
        return self._number

    def _receive(self, api: str, version: int, number: int, good: int = 0) -> Any:
        while True:
            frame = memoryview(self._take(*SIZE.unpack(self._take(SIZE.size))))
            if read_correlation_id(frame) == number:
                answer = read_response(api, version, frame, read_response_header(api, version, frame)[1])
                return _checked(answer, good)

    def _ask(self, api: str, version: int, **fields: Any) -> Any:
        """The answer. Refused if it has an error code, on the top level or in a part."""
        return self._receive(api, version, self._send(api, version, fields))

    def _take(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            piece = self._socket.recv(size_bytes - len(data))
            assert piece, "the broker has closed the connection"
            data += piece
        return bytes(data)

    # Topics.

    def list_topics(self, after: str, limit: int) -> list[TopicRow]:
        cursor = {"topic_name": f"{after}\0", "partition_index": 0}
        found = self._ask("DescribeTopicPartitions", 0, topics=[], response_partition_limit=2_000, cursor=cursor)
        return [
            TopicRow(row["name"], len(row["partitions"]), self._count(row["name"])) for row in found["topics"][:limit]
        ]

    def _count(self, topic: str) -> int:
        return sum(row.next - row.first for row in self.describe_topic(topic))

    def create_topic(self, name: str, partitions: int = -1, settings: Mapping[str, str] | None = None) -> str:
        rows = [{"name": key, "value": value} for key, value in (settings or {}).items()]
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": -1, "configs": rows}
        found = self._ask("CreateTopics", 7, topics=[wanted], timeout_ms=30_000)
        return str(found["topics"][0]["topic_id"])

    def add_partitions(self, topic: str, total: int) -> None:
        self._ask(
            "CreatePartitions", 3, topics=[{"name": topic, "count": total, "assignments": None}], timeout_ms=30_000
        )

    def describe_topic(self, topic: str) -> list[PartitionRow]:
        found = self._ask("Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
        first, latest = self.find_offsets(topic, "beginning"), self.find_offsets(topic, "latest")
        return [
            PartitionRow(
                row["partition_index"],
                row["leader_id"],
                tuple(row["replica_nodes"]),
                tuple(row["isr_nodes"]),
                first[row["partition_index"]],
                latest[row["partition_index"]],
            )
            for row in found["topics"][0]["partitions"]
        ]

    def log_directories(self, topic: str) -> list[Place]:
        found = self._ask("DescribeLogDirs", 4, topics=[{"topic": topic, "partitions": [0]}])
        rows = [row for directory in found["results"] for row in directory["topics"]]
        return [Place(row["name"], each["partition_index"]) for row in rows for each in row["partitions"]]

    def delete_topic(self, topic: str) -> None:
        self._ask("DeleteTopics", 6, topics=[{"name": topic}], timeout_ms=30_000)

    def delete_messages(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        rows = [{"partition_index": partition, "offset": offset} for partition, offset in before.items()]
        found = self._ask("DeleteRecords", 2, topics=[{"name": topic, "partitions": rows}], timeout_ms=30_000)
        return {row["partition_index"]: row["low_watermark"] for row in found["topics"][0]["partitions"]}

    def topic_settings(self, topic: str) -> dict[str, str | None]:
        return self._settings(_TOPIC, topic)

    def change_topic_settings(self, topic: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        self._change(_TOPIC, topic, chosen, unset)

    def _settings(self, kind: int, name: str, *, own: bool = True) -> dict[str, str | None]:
        wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        found = self._ask("DescribeConfigs", 4, resources=[wanted])
        return {
            row["name"]: row["value"]
            for row in found["results"][0]["configs"]
            if not own or row["config_source"] == _OWN_SOURCES[kind]
        }

    def _change(self, kind: int, name: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        rows = [{"name": key, "config_operation": _SET, "value": value} for key, value in chosen.items()]
        rows += [{"name": key, "config_operation": _UNSET, "value": ""} for key in unset]
        wanted = {"resource_type": kind, "resource_name": name, "configs": rows}
        self._ask("IncrementalAlterConfigs", 1, resources=[wanted])

    # Writing.

    def put(self, topic: str, value: str, key: str | None = None, partition: int | None = None) -> Stored:
        return self._puts(topic, [value], partition=-1 if partition is None else partition)[0]

    def put_many(self, topic: str, values: Sequence[str]) -> list[Stored]:
        return self._puts(topic, values, partition=0)

    def put_by_hash(self, topic: str, value: str, hash: int) -> Stored:
        return self._puts(topic, [value], hash=hash)[0]

    def put_once(self, topic: str, value: str, message_id: str) -> StoredOnce:
        records = batch(value.encode(), ids=[message_id.encode()])
        row = self._puts_records(topic, records, partition=0, ids=[message_id.encode()])
        known = row["known"] or ()
        return StoredOnce(row["partition"], known[0]["offset"] if known else row["base_offset"], bool(known))

    def put_tombstone(self, topic: str, key: str) -> Stored:
        row = self._puts_records(topic, tombstone(key.encode()), partition=0)
        return Stored(row["partition"], row["base_offset"])

    def _puts(self, topic: str, values: Sequence[str], partition: int = -1, hash: int = 0) -> list[Stored]:
        row = self._puts_records(topic, batch(*(value.encode() for value in values)), partition, hash)
        return [Stored(row["partition"], row["base_offset"] + index) for index in range(len(values))]

    def _puts_records(
        self, topic: str, records: bytes, partition: int = -1, hash: int = 0, ids: list[bytes] | None = None
    ) -> Any:
        entry = {"partition": partition, "hash": hash, "records": records, "message_ids": ids}
        wanted = {"acks": -1, "timeout_ms": 30_000, "topics": [{"name": topic, "entries": [entry]}]}
        # A retry gets this error with the offset of the first copy, which is a success.
        good = ErrorCode.DUPLICATE_MESSAGE_ID.number
        found = self._receive("Puts", 0, self._send("Puts", 0, wanted), good)
        return found["topics"][0]["entries"][0]

    # Reading.

    def get(self, topic: str, partition: int, offset: int, max_messages: int = 500, wait_s: float = 0) -> list[Read]:
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        found = self._ask(
            "Fetch",
            12,
            max_wait_ms=int(wait_s * 1000),
            min_bytes=1,
            topics=[{"topic": topic, "partitions": [wanted]}],
        )
        records = found["responses"][0]["partitions"][0]["records"]
        rows = stored(None if records is None else bytes(records))
        return [Read(row.offset, row.value.decode()) for row in rows if row.offset >= offset][:max_messages]

    def long_poll(self, topic: str, offset: int) -> list[Read]:
        return self.get(topic, 0, offset, wait_s=60)

    def poll(self, topic: str) -> tuple[list[Read], int]:
        found = self.get(topic, 0, 0)
        return found, found[-1].offset + 1

    def find_offsets(self, topic: str, at: str | int) -> dict[int, int]:
        time_ms = _TIMES[at] if isinstance(at, str) else at
        described = self._ask("Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
        rows = [
            {"partition_index": row["partition_index"], "timestamp": time_ms}
            for row in described["topics"][0]["partitions"]
        ]
        found = self._ask("ListOffsets", 6, replica_id=-1, topics=[{"name": topic, "partitions": rows}])
        return {row["partition_index"]: row["offset"] for row in found["topics"][0]["partitions"]}

    def subscribe(self, topic: str, count: int, start: str) -> list[Read]:
        assert start == "beginning", "the wire has numbers for positions"
        partitions = [{"partition": 0, "offset": -2, "leader_epoch": -1}]
        wanted = {
            "group_id": None,
            "window_messages": 100,
            "window_bytes": 1 << 20,
            "share_percent": 50,
            "otherwise": -3,
            "topics": [{"name": topic, "topic_id": UUID(int=0), "partitions": partitions}],
        }
        number = self._send("Subscribe", 0, wanted)
        found: list[Read] = []
        while len(found) < count:
            for row in self._receive("Subscribe", 0, number)["partitions"]:
                found += [Read(each.offset, each.value.decode()) for each in stored(bytes(row["records"] or b""))]
        self._ask("Unsubscribe", 0, subscription_id=number)
        return found

    # Groups.

    def read_in_group(self, topic: str, group: str, count: int) -> list[str]:
        who = {"group_id": group, "client_id": "wire"}
        self._ask("IteratorJoin", 0, **who)
        given = self._ask("GetIterator", 0, **who, **_WANTED, topic=topic, partition=0)["given"]
        found = self._ask("ReadIterator", 0, iterator=given["iterator"], max_bytes=1 << 20, max_wait_ms=60_000)
        values = [each.value.decode() for each in stored(bytes(found["records"]))]
        self._ask("CommitIterator", 0, **who, iterator=found["iterator"], count=len(values))
        self._ask("IteratorLeave", 0, **who)
        return values

    def list_groups(self) -> dict[str, str]:
        return {row["group_id"]: row["group_state"] for row in self._ask("ListGroups", 5)["groups"]}

    def describe_group(self, group: str) -> tuple[str, list[str]]:
        found = self._ask("ConsumerGroupDescribe", 1, group_ids=[group])["groups"][0]
        return found["group_state"], sorted(
            topic for member in found["members"] for topic in member["subscribed_topic_names"]
        )

    def delete_group(self, group: str) -> None:
        self._ask("DeleteGroups", 2, groups_names=[group])

    def group_offsets(self, group: str) -> dict[Place, int]:
        wanted = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        found = self._ask("OffsetFetch", 9, groups=[wanted])["groups"][0]
        return {
            Place(topic["name"], row["partition_index"]): row["committed_offset"]
            for topic in found["topics"]
            for row in topic["partitions"]
        }

    def commit_offsets(self, group: str, topic: str, offset: int) -> None:
        rows = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        self._ask("OffsetCommit", 9, group_id=group, topics=[{"name": topic, "partitions": rows}])

    def delete_offsets(self, group: str, topic: str) -> None:
        self._ask("OffsetDelete", 0, group_id=group, topics=[{"name": topic, "partitions": [{"partition_index": 0}]}])

    def group_settings(self, group: str) -> dict[str, str | None]:
        return self._settings(_GROUP, group)

    def change_group_settings(self, group: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        self._change(_GROUP, group, chosen, unset)

    # Iterators.

    def join_group(self, group: str, client_id: str) -> list[Place]:
        return _owned(self._ask("IteratorJoin", 0, group_id=group, client_id=client_id))

    def heartbeat(self, group: str, client_id: str) -> list[Place]:
        return _owned(self._ask("IteratorHeartbeat", 0, group_id=group, client_id=client_id))

    def leave_group(self, group: str, client_id: str) -> None:
        self._ask("IteratorLeave", 0, group_id=group, client_id=client_id)

    def get_iterator(self, group: str, client_id: str, topic: str, partition: int = 0) -> Place:
        who = {"group_id": group, "client_id": client_id}
        given = self._ask("GetIterator", 0, **who, **_WANTED, topic=topic, partition=partition)["given"]
        return Place(given["topic"], given["partition"])

    def list_iterators(self, group: str) -> list[InFlight]:
        rows = self._ask("ListIterators", 0, group_id=group, client_id=None)["given"]
        return [InFlight(row["client_id"], row["topic"], row["partition"]) for row in rows]

    def read_iterator(self, iterator: GroupIterator) -> list[Read]:
        found = self._ask("ReadIterator", 0, iterator=iterator.token, max_bytes=1 << 20, max_wait_ms=0)
        return [Read(each.offset, each.value.decode()) for each in stored(bytes(found["records"]))]

    def deliver_iterator(self, group: str, client_id: str, iterator: GroupIterator, count: int) -> None:
        self._ask("DeliverIterator", 0, group_id=group, client_id=client_id, iterator=iterator.token, count=count)

    def commit_iterator(self, group: str, client_id: str, iterator: GroupIterator, count: int | None) -> int:
        read = -1 if count is None else count
        found = self._ask("CommitIterator", 0, group_id=group, client_id=client_id, iterator=iterator.token, count=read)
        position: int = found["position"]
        return position

    # The cluster.

    def service_map(self, topics: Sequence[str]) -> dict[Place, int]:
        found = self._ask("ServiceMap", 0, topics=topics, partitions_max=100)
        return {
            Place(topic["name"], row["partition"]): row["leader_id"]
            for topic in found["topics"]
            for row in topic["partitions"]
        }

    def backup_map(self, topics: Sequence[str]) -> dict[Place, int]:
        found = self._ask("BackupMap", 0, topics=topics, partitions_max=100)
        return {
            Place(topic["name"], row["partition"]): row["end_offset"]
            for topic in found["topics"]
            for row in topic["partitions"]
        }

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        found = self._ask("Query", 0, sql=sql, rows_max=100, timeout_ms=5_000)
        return list(found["columns"]), [json.loads(bytes(row)) for row in found["rows"]]

    def info(self) -> tuple[str, str]:
        found = self._ask("Info", 0, client_version=millstream.__version__)
        return found["broker_version"], found["cluster_id"]

    def describe_cluster(self) -> dict[int, int]:
        return {row["broker_id"]: row["port"] for row in self._ask("DescribeCluster", 1)["brokers"]}

    def broker_settings(self, broker: int) -> dict[str, str | None]:
        return self._settings(_BROKER, str(broker), own=False)

    def change_broker_settings(self, broker: int, chosen: Mapping[str, str]) -> None:
        self._change(_BROKER, str(broker), chosen)


_WANTED = {"max_messages": 100, "in_flight_ms": -1, "start": -2}


def _checked(answer: Any, good: int = 0) -> Any:
    """Return the answer, or raise Refused for the first error code in it, at any depth."""
    if isinstance(answer, dict):
        number = answer.get("error_code")
        if number and number != good:
            raise Refused(ErrorCode.of(number).name, text=answer.get("error_message") or "")
        for each in answer.values():
            _checked(each, good)
    elif isinstance(answer, list | tuple):
        for each in answer:
            _checked(each, good)
    return answer


def _owned(answer: Any) -> list[Place]:
    return [Place(row["topic"], number) for row in answer["assignment"] for number in row["partitions"]]
