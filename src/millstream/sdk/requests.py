"""Encodes the requests of producers and consumers, and decodes the responses to plain values.

`admin/admin_requests.py` and `admin/group_requests.py` do so for administration and groups. No other module of the SDK
core knows the layout of these requests.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.model.roles import Role
from millstream.model.setting_values import SettingValue, plain_settings
from millstream.sdk.responses import (
    Broker,
    BrokerInfo,
    ClusterView,
    FetchedBatches,
    ListedOffset,
    NotLeaderError,
    PartitionView,
    Produced,
    ProducerIdentity,
    ProducerState,
    TopicView,
    refusal,
)
from millstream.wire.client_connection import Api, ApiRequest
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.fetch import FetchedPartition, FetchPartition
from millstream.wire.fetch_client import parse_fetch_response, write_fetch_request
from millstream.wire.framing import Buffer
from millstream.wire.messages import read_response, write_request
from millstream.wire.produce import ProduceResult, parse_produce_response, write_produce_request
from millstream.wire.puts import parse_puts_response, write_puts_request

# Produce and Fetch use the last versions with topic names, because this client routes by name. Continuous readers use
# FETCH_BY_ID: the topic id detects a topic that was deleted and created again.
PRODUCE = Api(0, "Produce", 3, 12)
FETCH = Api(1, "Fetch", 4, 12)
FETCH_BY_ID = Api(1, "Fetch", 4, 13)
LIST_OFFSETS = Api(2, "ListOffsets", 1, 7)
METADATA = Api(3, "Metadata", 4, 12)
CREATE_TOPICS = Api(19, "CreateTopics", 4, 7)
DELETE_TOPICS = Api(20, "DeleteTopics", 1, 5)
INIT_PRODUCER_ID = Api(22, "InitProducerId", 0, 4)
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", 0, 0)
INFO = Api(1000, "Info", 0, 0)
PUTS = Api(1003, "Puts", 0, 0)
ROLE = Api(1002, "Role", 0, 0)

BEGINNING = -2
LATEST = -1

NO_LEADER_EPOCH = -1
CONSUMER = -1
"""The replica id of a client, which is not a replica."""


_LEADER_CHANGED = frozenset(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
)
"""Errors whose response may name the current leader. A leader beside any other error is ignored."""


def _encode(api: Api, version: int, fields: dict[str, Any]) -> list[Buffer]:
    return [write_request(api.name, version, fields)]


def metadata(topics: Sequence[str] | None, *, auto_create: bool) -> ApiRequest[ClusterView]:
    """Request the description of the cluster and of these topics, or of all (None)."""
    rows = None if topics is None else [{"name": name} for name in topics]
    fields = {"topics": rows, "allow_auto_topic_creation": auto_create}

    def decode(version: int, frame: memoryview, start: int) -> ClusterView:
        answer = read_response(METADATA.name, version, frame, start)
        brokers = {row["node_id"]: Broker(row["node_id"], row["host"], row["port"]) for row in answer["brokers"]}
        views = {row["name"]: topic_view(row) for row in answer["topics"] if row["name"] is not None}
        return ClusterView(answer["cluster_id"] or "", answer["controller_id"], brokers, views)

    return ApiRequest(METADATA, lambda version: _encode(METADATA, version, fields), decode)


def topic_view(row: dict[str, Any]) -> TopicView:
    """Convert a topic of a Metadata or DescribeTopicPartitions response."""
    partitions = [
        PartitionView(
            part["partition_index"],
            part["leader_id"],
            part.get("leader_epoch", -1),
            tuple(part["replica_nodes"]),
            tuple(part["isr_nodes"]),
        )
        for part in row["partitions"]
    ]
    partitions.sort()
    topic_id = row.get("topic_id", NO_TOPIC_ID)
    return TopicView(row["name"], topic_id, row["is_internal"], row["error_code"], tuple(partitions))


def produce(where: TopicPartition, batch: Buffer, *, acks: int, timeout_ms: int) -> ApiRequest[Produced]:
    def encode(version: int) -> list[Buffer]:
        topics = [(where.topic, [(where.partition, batch)])]
        return write_produce_request(version, topics, acks=acks, timeout_ms=timeout_ms)

    def decode(version: int, frame: memoryview, start: int) -> Produced | MillstreamError:
        ((_, (row,)),) = parse_produce_response(version, frame, start)
        if row.error:
            return _write_refusal(row, where)
        return Produced(row.base_offset, row.append_time_ms, row.log_start_offset)

    return ApiRequest(PRODUCE, encode, decode, answered=acks != 0)


class KnownIdsError(MillstreamError):
    """Some messages of a batch were stored before under their ids, so the broker stored nothing of it.

    `known` maps the index of each such message in the batch to the offset of its first copy.
    """

    def __init__(self, where: TopicPartition, known: Mapping[int, int]) -> None:
        super().__init__(
            ErrorCode.DUPLICATE_MESSAGE_ID, f"{where}: {len(known)} messages of the batch were stored before"
        )
        self.known = known


def puts(
    where: TopicPartition, batch: Buffer, ids: Sequence[bytes] | None, *, acks: int, timeout_ms: int
) -> ApiRequest[Produced]:
    """Append a batch whose messages may have ids; the result is KnownIdsError if some ids were stored before."""

    def encode(version: int) -> list[Buffer]:
        entry = (where.partition, 0, batch, ids)
        return write_puts_request([(where.topic, [entry])], acks=acks, timeout_ms=timeout_ms)

    def decode(version: int, frame: memoryview, start: int) -> Produced | MillstreamError:
        ((_, (row,)),) = parse_puts_response(frame, start)
        if row.error == ErrorCode.DUPLICATE_MESSAGE_ID.number:
            return KnownIdsError(where, dict(row.known))
        if row.error:
            return _write_refusal(row, where)
        return Produced(row.base_offset, row.append_time_ms, row.log_start_offset)

    return ApiRequest(PUTS, encode, decode, answered=acks != 0)


_ACKS_ALL = -1

PutResults = dict[TopicPartition, Produced | MillstreamError]


def puts_together(batches: Mapping[TopicPartition, Buffer], *, timeout_ms: int) -> ApiRequest[PutResults]:
    """Append one batch to each of several partitions with the same leader. Their messages have no natural ids."""
    topics: dict[str, list[tuple[int, int, Buffer, None]]] = {}
    for (topic, partition), batch in batches.items():
        topics.setdefault(topic, []).append((partition, 0, batch, None))

    def encode(version: int) -> list[Buffer]:
        return write_puts_request(list(topics.items()), acks=_ACKS_ALL, timeout_ms=timeout_ms)

    def decode(version: int, frame: memoryview, start: int) -> PutResults:
        found: PutResults = {}
        for topic, rows in parse_puts_response(frame, start):
            for row in rows:
                where = TopicPartition(topic, row.partition)
                produced = Produced(row.base_offset, row.append_time_ms, row.log_start_offset)
                found[where] = _write_refusal(row, where) if row.error else produced
        if found.keys() != batches.keys():
            raise ValueError("the response names other partitions than the request")
        return found

    return ApiRequest(PUTS, encode, decode)


def fetch(
    where: TopicPartition,
    offset: int,
    *,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int = 1,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> ApiRequest[FetchedBatches]:
    """Fetch one partition from `offset` on, without a fetch session; the broker waits for at least `min_bytes`."""

    def encode(version: int) -> list[Buffer]:
        topics = [(where.topic, [FetchPartition(where.partition, offset, max_bytes, leader_epoch)])]
        body = write_fetch_request(version, topics, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes)
        return [body]

    def decode(version: int, frame: memoryview, start: int) -> FetchedBatches | MillstreamError:
        answer = parse_fetch_response(version, frame, start)
        if answer.error:
            return refusal(answer.error, f"reading {where}")
        ((_, (row,)),) = answer.topics
        if row.error:
            return fetch_refusal(row, f"reading {where} at offset {offset}")
        return FetchedBatches(row.high_watermark, row.log_start_offset, memoryview(cast(Buffer, row.records)))

    return ApiRequest(FETCH, encode, decode, wait_s=max_wait_ms / 1000)


def fetch_refusal(row: FetchedPartition, concerns: str) -> MillstreamError:
    """Return the error of a partition in a Fetch response, with the current leader if the response names it."""
    return naming_leader(refusal(row.error, concerns), row.current_leader)


def _write_refusal(row: ProduceResult, where: TopicPartition) -> MillstreamError:
    """Return the error of a partition in a response to Produce or Puts, with the leader that it names."""
    error = refusal(row.error, f"writing to {where}", row.message)
    return naming_leader(error, row.current_leader, not_appended=row.not_appended)


def naming_leader(
    error: MillstreamError, leader: CurrentLeader | None, *, not_appended: bool = False
) -> MillstreamError:
    """Return a refusal with the leader that the response names; the same refusal if it names none."""
    if leader is None or error.code not in _LEADER_CHANGED:
        return error
    broker = None if leader.endpoint is None else Broker(*leader.endpoint[:3])
    return NotLeaderError(
        error,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        broker=broker,
        not_appended=not_appended,
    )


def list_offsets(
    places: Mapping[TopicPartition, int],
) -> ApiRequest[dict[TopicPartition, ListedOffset | MillstreamError]]:
    """Request offsets by timestamp (ms), BEGINNING or LATEST; all partitions must have the same leader."""
    rows: dict[str, list[dict[str, int]]] = {}
    for where, timestamp in places.items():
        rows.setdefault(where.topic, []).append({"partition_index": where.partition, "timestamp": timestamp})
    topics = [{"name": name, "partitions": parts} for name, parts in rows.items()]
    fields = {"replica_id": CONSUMER, "topics": topics}

    def decode(version: int, frame: memoryview, start: int) -> dict[TopicPartition, ListedOffset | MillstreamError]:
        found: dict[TopicPartition, ListedOffset | MillstreamError] = {}
        for topic in read_response(LIST_OFFSETS.name, version, frame, start)["topics"]:
            for part in topic["partitions"]:
                where = TopicPartition(topic["name"], part["partition_index"])
                found[where] = ListedOffset(part["offset"], part["timestamp"], part.get("leader_epoch", -1))
                if part["error_code"]:
                    found[where] = refusal(part["error_code"], f"offsets of {where}")
        if found.keys() != places.keys():
            raise ValueError("the response names other partitions than the request")
        return found

    return ApiRequest(LIST_OFFSETS, lambda version: _encode(LIST_OFFSETS, version, fields), decode)


def create_topic(
    name: str, *, partitions: int, replication_factor: int, settings: Mapping[str, SettingValue], timeout_ms: int
) -> ApiRequest[UUID]:
    """Create one topic; -1 uses the broker's default for a number. The response is the topic id."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "configs": [{"name": key, "value": value} for key, value in plain_settings(settings).items()],
    }
    fields = {"topics": [topic], "timeout_ms": timeout_ms}

    def decode(version: int, frame: memoryview, start: int) -> UUID | MillstreamError:
        (row,) = read_response(CREATE_TOPICS.name, version, frame, start)["topics"]
        if row["error_code"]:
            return refusal(row["error_code"], f"creating topic {name!r}", row.get("error_message"))
        topic_id: TopicId = row.get("topic_id", NO_TOPIC_ID)
        return topic_id

    wait_s = timeout_ms / 1000
    return ApiRequest(CREATE_TOPICS, lambda version: _encode(CREATE_TOPICS, version, fields), decode, wait_s=wait_s)


def delete_topic(name: str, timeout_ms: int) -> ApiRequest[None]:
    fields = {"topic_names": [name], "timeout_ms": timeout_ms}

    def decode(version: int, frame: memoryview, start: int) -> MillstreamError | None:
        (row,) = read_response(DELETE_TOPICS.name, version, frame, start)["responses"]
        if row["error_code"]:
            return refusal(row["error_code"], f"deleting topic {name!r}", row.get("error_message"))
        return None

    wait_s = timeout_ms / 1000
    return ApiRequest(DELETE_TOPICS, lambda version: _encode(DELETE_TOPICS, version, fields), decode, wait_s=wait_s)


def init_producer_id() -> ApiRequest[ProducerIdentity]:
    """Request a new producer id and epoch for an idempotent producer."""
    fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}

    def decode(version: int, frame: memoryview, start: int) -> ProducerIdentity | MillstreamError:
        answer = read_response(INIT_PRODUCER_ID.name, version, frame, start)
        if answer["error_code"]:
            return refusal(answer["error_code"], "requesting a producer id")
        return ProducerIdentity(answer["producer_id"], answer["producer_epoch"])

    return ApiRequest(INIT_PRODUCER_ID, lambda version: _encode(INIT_PRODUCER_ID, version, fields), decode)


def producer_state(
    producer_id: int, places: Mapping[TopicPartition, int]
) -> ApiRequest[dict[TopicPartition, ProducerState | MillstreamError | None]]:
    """Request the last sequence number of a producer in each partition; None where the broker does not know it.

    All partitions must have the same leader.
    """
    topics: dict[str, list[int]] = {}
    for where in places:
        topics.setdefault(where.topic, []).append(where.partition)
    fields = {"topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]}

    def decode(version: int, frame: memoryview, start: int) -> dict[TopicPartition, Any]:
        found: dict[TopicPartition, ProducerState | MillstreamError | None] = {}
        for topic in read_response(DESCRIBE_PRODUCERS.name, version, frame, start)["topics"]:
            for part in topic["partitions"]:
                where = TopicPartition(topic["name"], part["partition_index"])
                rows = (row for row in part["active_producers"] if row["producer_id"] == producer_id)
                states = (ProducerState(row["producer_epoch"], row["last_sequence"]) for row in rows)
                found[where] = next(states, None)
                if part["error_code"]:
                    found[where] = refusal(part["error_code"], f"producers of {where}", part["error_message"])
        if found.keys() != places.keys():
            raise ValueError("the response names other partitions than the request")
        return found

    return ApiRequest(DESCRIBE_PRODUCERS, lambda version: _encode(DESCRIBE_PRODUCERS, version, fields), decode)


def role(chosen: Role, producer_group: str | None = None) -> ApiRequest[None]:
    """Declare the role of the connection, producer or consumer. The role is final."""
    fields = {"role": chosen.value, "producer_group": producer_group}

    def decode(version: int, frame: memoryview, start: int) -> MillstreamError | None:
        answer = read_response(ROLE.name, version, frame, start)
        number = answer["error_code"]
        return refusal(number, "the role of a connection", answer["error_message"]) if number else None

    return ApiRequest(ROLE, lambda version: _encode(ROLE, version, fields), decode)


def info(client_version: str) -> ApiRequest[BrokerInfo]:
    """Request the description of a Millstream broker: version, features, clock."""

    def decode(version: int, frame: memoryview, start: int) -> BrokerInfo:
        answer = read_response(INFO.name, version, frame, start)
        return BrokerInfo(
            node_id=answer["node_id"],
            cluster_id=answer["cluster_id"],
            version=answer["broker_version"],
            client_version_min=answer["client_version_min"],
            client_version_max=answer["client_version_max"],
            server_time_ms=answer["server_time_ms"],
            features={row["name"]: row["value"] for row in answer["features"]},
            warning=answer["error_message"] or "" if answer["error_code"] else "",
        )

    return ApiRequest(INFO, lambda version: _encode(INFO, version, {"client_version": client_version}), decode)
