"""Brokers in memory for tests of clients: they keep messages, and misbehave as a test tells them to.

They speak through kafka-python's own message classes, so that they share no mistake with the code under test.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from struct import unpack_from
from typing import Any, TypeVar, cast

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
"""Key to request, answer, and the versions served."""

NAMES = {request.name.removesuffix("Request"): key for key, (request, *_) in MESSAGES.items()}


@dataclass(frozen=True)
class Refuse:
    """Answer with this error and do nothing."""

    code: ErrorCode


@dataclass(frozen=True)
class Cut:
    """Break the connection: before the work is done, or after it, with the answer lost."""

    after: bool


@dataclass(frozen=True)
class Silence:
    """Do nothing and say nothing."""


@dataclass(frozen=True)
class Late:
    """Do it, and answer after so many seconds."""

    delay_s: float


@dataclass(frozen=True)
class Say:
    """Answer with these bytes, whatever they are."""

    data: bytes


Fault = Refuse | Cut | Silence | Late | Say


@dataclass
class PartitionLog:
    leader: int = 1
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
        stamp(stored, 0, offset, 0)
        self.batches.append(bytes(stored))
        self.changed.set()
        self.changed = asyncio.Event()
        return ErrorCode.NONE, offset

    def read(self, offset: int) -> bytes:
        return b"".join(batch for batch in self.batches if read_header(batch).next_offset > offset)


class ScriptedBroker(asyncio.Protocol):
    """One broker's listener; each connection gets a copy of its own."""

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
                response = await answer(self.node_id, request, fault.code if isinstance(fault, Refuse) else None)
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
    """Some brokers and what they share."""

    def __init__(self, loop: SimulatedLoop, network: SimulatedNetwork, nodes: int = 1) -> None:
        self.network = network
        self.loop = loop
        self.nodes = {number: f"broker{number}" for number in range(1, nodes + 1)}
        self.topics: dict[str, list[PartitionLog]] = {}
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
        """The next requests of this API meet these, one each."""
        self.faults[NAMES[api]].extend(faults)

    def topic(self, name: str, partitions: int = 1) -> list[PartitionLog]:
        self.topics[name] = [PartitionLog() for _ in range(partitions)]
        return self.topics[name]

    def requests(self, api: str) -> list[int]:
        """Which brokers were asked this, in order."""
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
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        topics = []
        for name in names:
            if name not in self.topics and self.auto_create and request.allow_auto_topic_creation and not refusal:
                self.topic(name)
            logs = self.topics.get(name, [])
            code = refusal or (ErrorCode.NONE if logs else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            parts = [
                response.MetadataResponseTopic.MetadataResponsePartition(
                    partition_index=number, leader_id=log.leader, replica_nodes=[log.leader], isr_nodes=[log.leader]
                )
                for number, log in enumerate(logs)
            ]
            topics.append(response.MetadataResponseTopic(error_code=code.number, name=name, partitions=parts))
        brokers = [
            response.MetadataResponseBroker(node_id=number, host=host, port=PORT) for number, host in self.nodes.items()
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
        (topic,) = request.topics
        (part,) = topic.partitions
        log = self.topics[topic.topic][part.partition]
        code, offset = refusal or ErrorCode.NONE, part.fetch_offset
        if refusal is None and log.leader != node:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif offset < log.start or (offset > log.end and self.out_of_range_beyond_end):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif refusal is None:
            end_s = self.loop.time() + request.max_wait_ms / 1000
            while offset >= log.end and self.loop.time() < end_s:
                try:
                    await asyncio.wait_for(log.changed.wait(), end_s - self.loop.time())
                except TimeoutError:
                    break
        row = FetchResponse.FetchableTopicResponse.PartitionData(
            partition_index=part.partition,
            error_code=code.number,
            high_watermark=log.end,
            log_start_offset=log.start,
            records=log.read(offset) if code is ErrorCode.NONE else b"",
        )
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=[row])])

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
    """A cluster, and clients of it, in simulated time."""

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
    """Run a test's body with a cluster; whatever asyncio would only have logged fails it."""
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
        scene.cluster.tasks.clear()  # One that failed is reported when it is thrown away.
        assert loop.settle_failures() == []
        return result
    finally:
        loop.end()
