"""DescribeTopicPartitions: as Metadata, but in pages. A cursor says where the next one begins: a topic, by name, and
the number of its first partition that was left out."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from penstock.broker.answer_rows import Group, encode_groups, encode_rows
from penstock.broker.capabilities import Identity, TopicLookup
from penstock.broker.operations import TOPIC_OPERATIONS
from penstock.broker.request import Request, Result, Work
from penstock.catalog.catalog import Topic
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import INTERNAL_PREFIX, check_topic_name
from penstock.partition.partition import Partition
from penstock.wire.messages import read_request, write_response
from penstock.wire.reader import Fields

API = "DescribeTopicPartitions"
PARTITIONS_MAX = 2_000
"""So many partitions one answer has at most, whatever was asked for."""


class _Cursor(NamedTuple):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsHandler:
    def __init__(self, topics: TopicLookup, identity: Identity) -> None:
        self._topics = topics
        self._identity = identity

    def __call__(self, request: Request) -> Result:
        return Work(self._answer(request.version, read_request(API, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        names = sorted({topic["name"] for topic in fields["topics"]}) or [each.name for each in self._topics.topics()]
        cursor = fields["cursor"] and _Cursor(fields["cursor"]["topic_name"], fields["cursor"]["partition_index"])
        if cursor and cursor.partition_index < 0:
            refused = ({"name": name, "error_code": ErrorCode.INVALID_REQUEST.number} for name in names)
            return write_response(API, version, {"topics": await encode_rows(API, version, ("topics",), refused)})
        page = _Page(self._topics, self._identity, max(1, min(fields["response_partition_limit"], PARTITIONS_MAX)))
        rows = await encode_groups(API, version, ("topics",), "partitions", page.groups(names, cursor))
        following = page.following and page.following._asdict()
        return write_response(API, version, {"topics": rows, "next_cursor": following})


class _Page:
    def __init__(self, topics: TopicLookup, identity: Identity, room: int) -> None:
        self.following: _Cursor | None = None
        self._topics = topics
        self._identity = identity
        self._room = room

    def groups(self, names: Sequence[str], cursor: _Cursor | None) -> Iterator[Group]:
        """The topics from the cursor on, as far as there is room for their partitions."""
        for name in names:
            if cursor and name < cursor.topic_name:
                continue
            first = cursor.partition_index if cursor and name == cursor.topic_name else 0
            topic = self._topics.topic(name)
            if topic is None:
                yield _missing(name), ()
                continue
            if not self._room:
                self.following = _Cursor(name, first)
                return
            shown = self._topics.of(name)[first : first + self._room]
            self._room -= len(shown)
            yield _row(topic), map(self._row, shown)
            if first + len(shown) < topic.partitions:
                self.following = _Cursor(name, first + len(shown))
                return

    def _row(self, partition: Partition) -> dict[str, Any]:
        return {
            "partition_index": partition.number,
            "leader_id": self._identity.node_id,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": [self._identity.node_id],
            "isr_nodes": [self._identity.node_id],
            "eligible_leader_replicas": [],
            "last_known_elr": [],
        }


def _row(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name.startswith(INTERNAL_PREFIX),
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _missing(name: str) -> dict[str, Any]:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except PenstockError as problem:
        error = problem.code
    return {"name": name, "error_code": error.number, "topic_authorized_operations": TOPIC_OPERATIONS}
