"""Metadata: who leads what, and where they are reached; makes topics that are asked for, where that is allowed.

Encoding many partitions is the work here, so a topic is encoded once per version of the protocol and kept until a
topic or a leadership changes; so is the answer to "all topics". What must be encoded anew is done in slices.
"""

import asyncio
from collections.abc import Generator
from typing import Any, NamedTuple
from uuid import UUID

from millstream.broker.dispatch.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from millstream.broker.dispatch.capabilities import AutoCreate, BrokerIdentity, TopicLookup
from millstream.broker.dispatch.request import Answer, BrokerRequest, Result, Work
from millstream.catalog.catalog import Topic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import INTERNAL_PREFIX, NO_TOPIC_ID, check_new_topic_name
from millstream.wire.messages import read_request, response_element_writer, write_response
from millstream.wire.schema_writers import EncodedArray

API = "Metadata"
SLICE = 1_000
"""So many partitions are encoded before others get their turn."""

CREATED_MAX = 100
"""So many topics one request may bring into being; a client that wants more asks again."""

KEPT_BYTES_MAX = 16 * 1024 * 1024
"""Encoded topics and answers that are kept; beyond it all are encoded anew."""

_ALL_WHEN_NULL_FROM = 1
_MAY_FORBID_CREATION_FROM = 4
_NULL_NAME_FROM = 12

_Slices = Generator[None, None, bytes]
"""Encodes something, with a yield after each slice."""


class _Form(NamedTuple):
    """What an encoded topic depends on besides the topic."""

    version: int
    with_operations: bool


class MetadataHandler:
    def __init__(
        self,
        topics: TopicLookup,
        identity: BrokerIdentity,
        auto_create: AutoCreate | None,
        default_partitions: int,
    ) -> None:
        """`auto_create` is None where topics are made by request only."""
        self._topics = topics
        self._identity = identity
        self._auto_create = auto_create
        self._default_partitions = default_partitions
        self._kept_for = -1
        self._kept_bytes = 0
        self._kept_topics: dict[tuple[UUID, _Form], bytes] = {}
        self._kept_answers: dict[tuple[_Form, bool], bytes] = {}

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        form = _Form(request.version, fields["include_topic_authorized_operations"])
        cluster_operations = fields["include_cluster_authorized_operations"]
        wanted = fields["topics"]
        if wanted is None or (not wanted and request.version < _ALL_WHEN_NULL_FROM):
            return self._all(form, cluster_operations)
        may_create = request.version < _MAY_FORBID_CREATION_FROM or fields["allow_auto_topic_creation"]
        missing = self._missing(wanted) if may_create and self._auto_create is not None else []
        if missing:
            return Work(self._create_and_answer(form, cluster_operations, wanted, missing))
        return _at_once(self._encode_named(form, cluster_operations, wanted))

    # All topics

    def _all(self, form: _Form, cluster_operations: bool) -> Result:
        self._forget_outdated()
        kept = self._kept_answers.get((form, cluster_operations))
        if kept is not None:
            return kept
        return _at_once(self._encode_all(form, cluster_operations))

    def _encode_all(self, form: _Form, cluster_operations: bool) -> _Slices:
        version = self._topics.version
        parts = []
        for topic in self._topics.topics():
            parts.append((yield from self._encode_topic(form, topic)))
        answer = self._whole(form, cluster_operations, parts)
        if version == self._topics.version == self._kept_for:
            self._count_kept(len(answer))
            self._kept_answers[form, cluster_operations] = answer
        return answer

    # Named topics

    def _encode_named(self, form: _Form, cluster_operations: bool, wanted: list[dict[str, Any]]) -> _Slices:
        parts = []
        for number, each in enumerate(wanted, 1):
            topic, error = self._find(each)
            if topic is not None:
                parts.append((yield from self._encode_topic(form, topic)))
            else:
                parts.append(_encode_missing(form, each, error))
                if number % SLICE == 0:
                    yield
        return self._whole(form, cluster_operations, parts)

    def _find(self, wanted: dict[str, Any]) -> tuple[Topic | None, ErrorCode]:
        topic_id, name = wanted["topic_id"], wanted["name"]
        if topic_id != NO_TOPIC_ID:
            return self._topics.topic_by_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        if name is None:
            return None, ErrorCode.INVALID_TOPIC
        topic = self._topics.topic(name)
        if topic is None:
            try:
                check_new_topic_name(name)
            except MillstreamError as error:
                return None, error.code
        return topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _missing(self, wanted: list[dict[str, Any]]) -> list[str]:
        names = []
        for each in wanted:
            if each["topic_id"] == NO_TOPIC_ID and self._find(each) == (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                names.append(each["name"])
                if len(names) == CREATED_MAX:
                    break
        return names

    async def _create_and_answer(
        self, form: _Form, cluster_operations: bool, wanted: list[dict[str, Any]], missing: list[str]
    ) -> Answer:
        assert self._auto_create is not None
        for name in missing:
            try:
                await self._auto_create.ensure(name, self._default_partitions)
            except MillstreamError:
                # The answer says that the topic is not there, and the client asks again: whatever kept it from
                # being made (a full disk, too many partitions) is in the broker's log.
                continue
        return await _run(self._encode_named(form, cluster_operations, wanted))

    # Encoding

    def _encode_topic(self, form: _Form, topic: Topic) -> _Slices:
        self._forget_outdated()
        kept = self._kept_topics.get((topic.topic_id, form))
        if kept is not None:
            return kept
        version = self._topics.version
        write_partition = response_element_writer(API, form.version, "topics", "partitions")
        replicas = [self._identity.node_id]
        rows = bytearray()
        partitions = self._topics.of(topic.name)
        for partition in partitions:
            write_partition(
                rows,
                {
                    "partition_index": partition.number,
                    "leader_id": self._identity.node_id,
                    "leader_epoch": partition.leader_epoch,
                    "replica_nodes": replicas,
                    "isr_nodes": replicas,
                },
            )
            if (partition.number + 1) % SLICE == 0:
                yield
        encoded = _encode_head(form, topic, EncodedArray(len(partitions), rows))
        if version == self._topics.version == self._kept_for:
            self._count_kept(len(encoded))
            self._kept_topics[topic.topic_id, form] = encoded
        return encoded

    def _whole(self, form: _Form, cluster_operations: bool, parts: list[bytes]) -> bytes:
        me = self._identity
        answer: dict[str, Any] = {
            "brokers": [{"node_id": me.node_id, "host": me.host, "port": me.port, "rack": None}],
            "cluster_id": me.cluster_id,
            "controller_id": me.node_id,
            "topics": EncodedArray(len(parts), b"".join(parts)),
        }
        if cluster_operations:
            answer["cluster_authorized_operations"] = CLUSTER_OPERATIONS
        return write_response(API, form.version, answer)

    def _forget_outdated(self) -> None:
        if self._kept_for != self._topics.version:
            self._forget()
            self._kept_for = self._topics.version

    def _count_kept(self, size: int) -> None:
        if self._kept_bytes + size > KEPT_BYTES_MAX:
            self._forget()
        self._kept_bytes += size

    def _forget(self) -> None:
        self._kept_topics.clear()
        self._kept_answers.clear()
        self._kept_bytes = 0


def _encode_head(form: _Form, topic: Topic, partitions: EncodedArray) -> bytes:
    row: dict[str, Any] = {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name.startswith(INTERNAL_PREFIX),
        "partitions": partitions,
    }
    if form.with_operations:
        row["topic_authorized_operations"] = TOPIC_OPERATIONS
    out = bytearray()
    response_element_writer(API, form.version, "topics")(out, row)
    return bytes(out)


def _encode_missing(form: _Form, wanted: dict[str, Any], error: ErrorCode) -> bytes:
    name = wanted["name"]
    row = {"error_code": error.number, "name": name, "topic_id": wanted["topic_id"]}
    if name is None and form.version < _NULL_NAME_FROM:
        row["name"] = ""
    out = bytearray()
    response_element_writer(API, form.version, "topics")(out, row)
    return bytes(out)


def _at_once(slices: _Slices) -> Result:
    """The answer now if it takes one slice only; otherwise work that lets others have their turn."""
    try:
        next(slices)
    except StopIteration as stop:
        answer: bytes = stop.value
        return answer
    return Work(_run(slices))


async def _run(slices: _Slices) -> bytes:
    while True:
        await asyncio.sleep(0)
        try:
            next(slices)
        except StopIteration as stop:
            answer: bytes = stop.value
            return answer
