"""Provides in-memory brokers for tests of clients: they store messages and inject scripted faults.

They use kafka-python's message classes, so that they share no error with the code under test.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from random import Random
from struct import unpack_from
from typing import Any, TypeVar, cast
from uuid import UUID

from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse

from builders.sdk.writing_client import WritingClient
from millstream.model.errors import ErrorCode
from millstream.records.batch import decode_batch
from millstream.records.header import read_header, stamp
from millstream.records.record import Record
from millstream.sdk.connection.cluster import ConnectionSettings
from millstream.seams.workers import Workers
from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.entropy import SimulatedEntropy
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.testing.simulated.workers import SimulatedWorkers

T = TypeVar("T")

PORT = 9092

MESSAGES: dict[int, tuple[Any, Any, int, int]] = {
    0: (ProduceRequest, ProduceResponse, 3, 13),
    1: (FetchRequest, FetchResponse, 4, 17),
    2: (ListOffsetsRequest, ListOffsetsResponse, 1, 10),
    3: (MetadataRequest, MetadataResponse, 0, 13),
    18: (ApiVersionsRequest, ApiVersionsResponse, 0, 4),
    19: (CreateTopicsRequest, CreateTopicsResponse, 2, 7),
    20: (DeleteTopicsRequest, DeleteTopicsResponse, 1, 6),
    22: (InitProducerIdRequest, InitProducerIdResponse, 0, 5),
}
"""API key to request class, response class, and the served versions."""

NAMES = {request.name.removesuffix("Request"): key for key, (request, *_) in MESSAGES.items()}


@dataclass(frozen=True)
class Refuse:
    """Answer with this error and do nothing."""

    code: ErrorCode


@dataclass(frozen=True)
class Cut:
    """Close the connection, before the request is processed, or after it without a response."""

    after: bool


@dataclass(frozen=True)
class Silence:
    """Neither process the request nor answer it."""


@dataclass(frozen=True)
class Late:
    """Process the request, and answer after this number of seconds."""

    delay_s: float


@dataclass(frozen=True)
class Say:
    """Answer with these bytes."""

    data: bytes


@dataclass(frozen=True)
class Depose:
    """Append the batch, make another broker the leader, and answer NOT_LEADER_OR_FOLLOWER."""

    leader: int


@dataclass(frozen=True)
class NameLeader:
    """Answer NOT_LEADER_OR_FOLLOWER, do nothing, and name this leader."""

    leader: int
    epoch: int


Fault = Refuse | Cut | Silence | Late | Say | Depose | NameLeader


NAMING = (ErrorCode.NOT_LEADER_OR_FOLLOWER.number, ErrorCode.FENCED_LEADER_EPOCH.number)
"""Errors with which brokers name the current leader."""


@dataclass
class PartitionLog:
    leader: int = 1
    epoch: int = -1
    start: int = 0
    batches: list[bytes] = field(default_factory=list)
    producers: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.start

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_batch(batch)]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        header = read_header(data)
        if header.producer_id >= 0:
            kept = self.producers.setdefault(header.producer_id, [])
            for sequence, count, offset in kept:
                if (sequence, count) == (header.base_sequence, header.record_count):
                    return ErrorCode.NONE, offset
            if header.base_sequence != (sum(kept[-1][:2]) % 2**31 if kept else 0):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            kept.append((header.base_sequence, header.record_count, self.end))
            del kept[:-5]
        stored = bytearray(data)
        offset = self.end
        stamp(stored, base_offset=offset, leader_epoch=0)
        self.batches.append(bytes(stored))
        self.changed.set()
        self.changed = asyncio.Event()
        return ErrorCode.NONE, offset

    def read(self, offset: int) -> bytes:
        return b"".join(batch for batch in self.batches if read_header(batch).next_offset > offset)


class ScriptedBroker(asyncio.Protocol):
    """The listener of one broker; each connection gets a copy."""

    def __init__(self, cluster: "ScriptedCluster", node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.cluster.connections += 1
        self._turn = asyncio.Lock()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and len(self._buffer) >= 4 + unpack_from(">i", self._buffer)[0]:
            (size,) = unpack_from(">i", self._buffer)
            frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
            task = asyncio.get_running_loop().create_task(self._serve(frame))
            self.cluster.tasks.append(task)

    async def _serve(self, frame: bytes) -> None:
        key, version, correlation_id = unpack_from(">hhi", frame)
        request_class, _, _, version_max = MESSAGES[key]
        known = version <= min(version_max, self.cluster.version_max.get(key, version_max))
        request = request_class.decode(frame, version=version, header=True) if known else None
        self.cluster.seen.append((self.node_id, request_class.name.removesuffix("Request"), version))
        async with self._turn:
            fault = self.cluster.faults[key].popleft() if self.cluster.faults[key] else None
            if isinstance(fault, Cut) and not fault.after:
                self._transport.abort()
                return
            if isinstance(fault, Silence):
                return
            if isinstance(fault, Say):
                self._transport.write(fault.data)
                return
            if not known:
                version, response = 0, self.cluster.refuse_version()
            else:
                answer = getattr(self.cluster, f"on_{NAME_OF[key]}")
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER if isinstance(fault, NameLeader) else None
                response = await answer(self.node_id, request, fault.code if isinstance(fault, Refuse) else code)
                if isinstance(fault, Depose):
                    self.cluster.depose(response, fault.leader)
                if isinstance(fault, NameLeader):
                    self.cluster.name_leader(response, lambda _: fault)
                elif self.cluster.names_leaders:
                    self.cluster.name_leader(response, lambda log: NameLeader(log.leader, log.epoch))
            if isinstance(fault, Late):
                await asyncio.sleep(fault.delay_s)
            if isinstance(fault, Cut):
                self._transport.abort()
            elif response is not None:
                response.API_VERSION = version
                response.with_header(correlation_id=correlation_id)
                self._transport.write(response.encode(header=True, framed=True))


NAME_OF = {0: "produce", 1: "fetch", 2: "offsets", 3: "metadata", 18: "versions", 19: "create", 20: "delete", 22: "id"}


class ScriptedCluster:
    """Several brokers with shared topics, faults and recorded requests."""

    def __init__(self, loop: SimulatedLoop, network: SimulatedNetwork, nodes: int = 1) -> None:
        self.network = network
        self.loop = loop
        self.nodes = {number: f"broker{number}" for number in range(1, nodes + 1)}
        self.topics: dict[str, list[PartitionLog]] = {}
        self.topic_ids: dict[str, UUID] = {}
        """The topic ids in Metadata responses; other topics have none."""
        self.names_leaders = False
        """True if refusals of Produce and Fetch name the leader and its address."""
        self.outdated: dict[int, tuple[dict[int, str], dict[str, list[PartitionLog]]]] = {}
        """Brokers that answer Metadata with what was true before: nodes and topics."""
        self.auto_create = True
        self.out_of_range_beyond_end = False
        self.controller = 1
        self.version_max: dict[int, int] = {}
        self.faults: dict[int, deque[Fault]] = defaultdict(deque)
        self.seen: list[tuple[int, str, int]] = []
        self.connections = 0
        self.tasks: list[asyncio.Task[None]] = []
        self._next_producer_id = 1000

    async def listen(self) -> None:
        for number, host in self.nodes.items():
            await self.network.host(host).listen(lambda number=number: ScriptedBroker(self, number), host, PORT)  # type: ignore[misc]  # a lambda's default has no annotation

    def then(self, api: str, *faults: Fault) -> None:
        """Apply these faults to the next requests of this API, one each."""
        self.faults[NAMES[api]].extend(faults)

    def topic(self, name: str, partitions: int = 1) -> list[PartitionLog]:
        self.topics[name] = [PartitionLog() for _ in range(partitions)]
        return self.topics[name]

    def depose(self, response: Any, leader: int) -> None:
        """Change the leader of the partitions in a Produce response, and turn the response into a refusal."""
        for topic in response.responses:
            for row in topic.partition_responses:
                self.move(self.topics[topic.name][row.index], leader)
                row.error_code, row.base_offset = ErrorCode.NOT_LEADER_OR_FOLLOWER.number, -1

    def move(self, log: PartitionLog, leader: int) -> None:
        """Make another broker the leader, under the next epoch."""
        log.leader, log.epoch = leader, log.epoch + 1

    def lag(self, node: int) -> None:
        """Let this broker answer Metadata from now on with what is true now."""
        topics = {name: [replace(log) for log in logs] for name, logs in self.topics.items()}
        self.outdated[node] = (dict(self.nodes), topics)

    def name_leader(self, response: Any, leader_of: Callable[[PartitionLog], NameLeader]) -> None:
        """Add the leader to each refusal in a Produce or Fetch response whose error is about the leader."""
        is_fetch = isinstance(response, FetchResponse)
        if not is_fetch and not isinstance(response, ProduceResponse):
            return
        endpoints: dict[int, Any] = {}
        for topic in response.responses:
            rows = topic.partitions if is_fetch else topic.partition_responses
            for row in rows:
                if row.error_code in NAMING:
                    number = row.partition_index if is_fetch else row.index
                    named = leader_of(self.topics[topic.topic if is_fetch else topic.name][number])
                    row.current_leader = type(row).LeaderIdAndEpoch(leader_id=named.leader, leader_epoch=named.epoch)
                    if named.leader in self.nodes:
                        endpoints[named.leader] = type(response).NodeEndpoint(
                            node_id=named.leader, host=self.nodes[named.leader], port=PORT, rack=None
                        )
        response.node_endpoints = list(endpoints.values())

    def requests(self, api: str) -> list[int]:
        """Return the brokers that received requests of this API, in order."""
        return [node for node, name, _ in self.seen if name == api]

    def refuse_version(self) -> Any:
        row = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=self.version_max.get(18, 4))
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.number, api_keys=[row])

    async def on_versions(self, node: int, request: Any, refusal: ErrorCode | None) -> Any:
        rows = [
            ApiVersionsResponse.ApiVersion(
                api_key=key, min_version=low, max_version=min(high, self.version_max.get(key, high))
            )
            for key, (_, _, low, high) in MESSAGES.items()
            if self.version_max.get(key, high) >= 0
        ]
        return ApiVersionsResponse(error_code=_number(refusal), api_keys=rows)

    async def on_metadata(self, node: int, request: Any, refusal: ErrorCode | None) -> Any:
        response = MetadataResponse
        nodes, known = self.outdated.get(node, (self.nodes, self.topics))
        names = list(known) if request.topics is None else [topic.name for topic in request.topics]
        topics = []
        for name in names:
            if name not in self.topics and self.auto_create and request.allow_auto_topic_creation and not refusal:
                self.topic(name)
            logs = known.get(name, [])
            code = refusal or (ErrorCode.NONE if logs else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            parts = [
                response.MetadataResponseTopic.MetadataResponsePartition(
                    partition_index=number,
                    leader_id=log.leader,
                    leader_epoch=log.epoch,
                    replica_nodes=[log.leader],
                    isr_nodes=[log.leader],
                )
                for number, log in enumerate(logs)
            ]
            row = response.MetadataResponseTopic(error_code=code.number, name=name, partitions=parts)
            row.topic_id = self.topic_ids.get(name)
            topics.append(row)
        brokers = [
            response.MetadataResponseBroker(node_id=number, host=host, port=PORT) for number, host in nodes.items()
        ]
        return response(brokers=brokers, cluster_id="scripted", controller_id=self.controller, topics=topics)

    async def on_produce(self, node: int, request: Any, refusal: ErrorCode | None) -> Any:
        (topic,) = request.topic_data
        (part,) = topic.partition_data
        log = dict(enumerate(self.topics.get(topic.name, ()))).get(part.index)
        code, offset = refusal, -1
        if log is None:
            code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif code is None and log.leader != node:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif code is None:
            code, offset = log.append(bytes(part.records))
        if request.acks == 0:
            return None
        answer = ProduceResponse.TopicProduceResponse
        row = answer.PartitionProduceResponse(index=part.index, error_code=code.number, base_offset=offset)
        return ProduceResponse(responses=[answer(name=topic.name, partition_responses=[row])])

    async def on_fetch(self, node: int, request: Any, refusal: ErrorCode | None) -> Any:
        end_s = self.loop.time() + request.max_wait_ms / 1000
        while True:
            topics = [
                FetchResponse.FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[self._fetched(node, topic.topic, part, refusal) for part in topic.partitions],
                )
                for topic in request.topics
            ]
            rows = [row for topic in topics for row in topic.partitions]
            if any(row.error_code or row.records for row in rows) or self.loop.time() >= end_s:
                return FetchResponse(responses=topics)
            logs = [self.topics[topic.topic][part.partition] for topic in request.topics for part in topic.partitions]
            waits = [asyncio.ensure_future(log.changed.wait()) for log in logs]
            await asyncio.wait(waits, timeout=end_s - self.loop.time(), return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    def _fetched(self, node: int, topic: str, part: Any, refusal: ErrorCode | None) -> Any:
        log, offset = self.topics[topic][part.partition], part.fetch_offset
        code = refusal or ErrorCode.NONE
        if refusal is None and log.leader != node:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif -1 < part.current_leader_epoch < log.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif part.current_leader_epoch > log.epoch:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif offset < log.start or (offset > log.end and self.out_of_range_beyond_end):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        return FetchResponse.FetchableTopicResponse.PartitionData(
            partition_index=part.partition,
            error_code=code.number,
            high_watermark=log.end,
            log_start_offset=log.start,
            records=log.read(offset) if code is ErrorCode.NONE else b"",
        )

    async def on_offsets(self, node: int, request: Any, refusal: ErrorCode | None) -> Any:
        answer = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            rows = []
            for part in topic.partitions:
                logs = self.topics.get(topic.name)
                log = logs[part.partition_index] if logs else PartitionLog(node)
                found = {-2: (log.start, -1), -1: (log.end, -1)}.get(part.timestamp)
                if found is None:
                    later = [each for each in log.records if each.timestamp >= part.timestamp]
                    found = (later[0].offset, later[0].timestamp) if later else (-1, -1)
                code = refusal or (ErrorCode.NOT_LEADER_OR_FOLLOWER if log.leader != node else ErrorCode.NONE)
                code = code if logs else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                rows.append(
                    answer.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index,
                        error_code=code.number,
                        offset=found[0],
                        timestamp=found[1],
                    )
                )
            topics.append(answer(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)

    async def on_create(self, node: int, request: Any, refusal: ErrorCode | None) -> Any:
        (topic,) = request.topics
        code = refusal or (ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in self.topics else ErrorCode.NONE)
        if self.controller != node:
            code = ErrorCode.NOT_CONTROLLER
        if code is ErrorCode.NONE:
            self.topic(topic.name, max(1, topic.num_partitions))
        row = CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=code.number)
        return CreateTopicsResponse(topics=[row])

    async def on_delete(self, node: int, request: Any, refusal: ErrorCode | None) -> Any:
        (name,) = request.topic_names
        code = refusal or (ErrorCode.NONE if name in self.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code is ErrorCode.NONE:
            del self.topics[name]
        row = DeleteTopicsResponse.DeletableTopicResult(name=name, error_code=code.number)
        return DeleteTopicsResponse(responses=[row])

    async def on_id(self, node: int, request: Any, refusal: ErrorCode | None) -> Any:
        self._next_producer_id += 1
        return InitProducerIdResponse(error_code=_number(refusal), producer_id=self._next_producer_id, producer_epoch=0)


def _number(code: ErrorCode | None) -> int:
    return (code or ErrorCode.NONE).number


class Scene:
    """A cluster and its clients, in simulated time."""

    def __init__(self, loop: SimulatedLoop, nodes: int) -> None:
        self.loop = loop
        self.network = SimulatedNetwork(loop, Random(1))
        self.cluster = ScriptedCluster(loop, self.network, nodes)
        self.clients: list[WritingClient] = []
        self.workers: Workers = SimulatedWorkers(loop, Random(3))

    def client(self, bootstrap: str = "broker1:9092", **settings: Any) -> WritingClient:
        client = WritingClient(
            bootstrap,
            network=self.network.host("client"),
            clock=SimulatedClock(self.loop),
            entropy=SimulatedEntropy(Random(2)),
            workers=self.workers,
            connection=ConnectionSettings(**settings),
        )
        self.clients.append(client)
        return client


def play(body: Callable[[Scene], Coroutine[Any, Any, T]], *, nodes: int = 1) -> T:
    """Run a test's body with a cluster; an error that asyncio would only log fails the test."""
    loop = SimulatedLoop()
    try:
        scene = Scene(loop, nodes)

        async def run() -> T:
            await scene.cluster.listen()
            try:
                return await body(scene)
            finally:
                for client in scene.clients:
                    client.close()

        result = loop.run_until_complete(run())
        scene.cluster.tasks.clear()  # asyncio reports a failed task when it is garbage collected.
        assert loop.settle_failures() == []
        return result
    finally:
        loop.end()
