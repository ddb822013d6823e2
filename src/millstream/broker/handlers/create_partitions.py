"""CreatePartitions: adds partitions to existing topics, each topic separately and with its own error."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from millstream.broker.dispatch.capabilities import ClusterNode, ImageSource, bad_assignment
from millstream.broker.dispatch.open_changes import CHANGED_TOPICS
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.listed_topics import check_listed
from millstream.broker.response_rows import encode_rows
from millstream.catalog.catalog import Topic
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "CreatePartitions"


class TopicGrowth(ImageSource, Protocol):
    async def grow(self, name: str, count: int, *, validate_only: bool) -> Topic: ...


class CreatePartitionsHandler:
    def __init__(self, topics: TopicGrowth, cluster: ClusterNode) -> None:
        self._topics = topics
        self._cluster = cluster

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access), change=CHANGED_TOPICS)

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        times = Counter(topic["name"] for topic in fields["topics"])
        rows = []
        for name, wanted in {topic["name"]: topic for topic in fields["topics"]}.items():
            row = {"name": name, "error_message": None}
            try:
                check_listed(name, times, access)
                await self._grow(wanted, fields["validate_only"])
            except MillstreamError as error:
                row |= {"error_code": error.code.number, "error_message": error.detail}
            rows.append(row)
        return write_response(API, version, {"results": await encode_rows(API, version, ("results",), rows)})

    async def _grow(self, wanted: Fields, validate_only: bool) -> None:
        name, count, assignments = wanted["name"], wanted["count"], wanted["assignments"]
        await self._topics.grow(name, count, validate_only=True)
        topic = self._topics.image.topic(name)
        if assignments is not None and topic is not None:
            self._check_assignments(assignments, count - topic.partitions)
        if not validate_only:
            await self._topics.grow(name, count, validate_only=False)

    def _check_assignments(self, assignments: Sequence[Fields], added: int) -> None:
        if len(assignments) != added:
            raise MillstreamError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"the request adds {added} partitions, but has {len(assignments)} assignments",
            )
        for each in assignments:
            if list(each["broker_ids"]) != [self._cluster.node_id]:
                raise bad_assignment(self._cluster.image, "a partition", each["broker_ids"])
