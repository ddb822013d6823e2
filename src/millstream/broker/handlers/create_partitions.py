"""CreatePartitions: more partitions for topics that are there, each topic by itself."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_rows
from millstream.catalog.catalog import Topic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "CreatePartitions"
TOPICS_MAX = 1_000
"""So many topics one request may let grow."""


class TopicGrowth(Protocol):
    def topic(self, name: str) -> Topic | None: ...

    async def grow(self, name: str, count: int, *, validate_only: bool) -> Topic: ...


class CreatePartitionsHandler:
    def __init__(self, topics: TopicGrowth, identity: BrokerIdentity) -> None:
        self._topics = topics
        self._identity = identity

    def __call__(self, request: BrokerRequest) -> Result:
        return Work(self._answer(request.version, read_request(API, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        times = Counter(topic["name"] for topic in fields["topics"])
        rows = []
        for name, wanted in {topic["name"]: topic for topic in fields["topics"]}.items():
            row = {"name": name, "error_message": None}
            try:
                if times[name] > 1:
                    raise MillstreamError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is there {times[name]} times")
                if len(times) > TOPICS_MAX:
                    raise MillstreamError(ErrorCode.POLICY_VIOLATION, f"more than {TOPICS_MAX} topics in one request")
                await self._grow(wanted, fields["validate_only"])
            except MillstreamError as error:
                row |= {"error_code": error.code.number, "error_message": error.detail}
            rows.append(row)
        return write_response(API, version, {"results": await encode_rows(API, version, ("results",), rows)})

    async def _grow(self, wanted: Fields, validate_only: bool) -> None:
        name, count, assignments = wanted["name"], wanted["count"], wanted["assignments"]
        await self._topics.grow(name, count, validate_only=True)
        topic = self._topics.topic(name)
        if assignments is not None and topic is not None:
            self._check_assignments(assignments, count - topic.partitions)
        if not validate_only:
            await self._topics.grow(name, count, validate_only=False)

    def _check_assignments(self, assignments: Sequence[Fields], added: int) -> None:
        if len(assignments) != added:
            raise MillstreamError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions are to be added, but {len(assignments)} are assigned",
            )
        for each in assignments:
            if list(each["broker_ids"]) != [self._identity.node_id]:
                raise MillstreamError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"a partition is assigned to {list(each['broker_ids'])[:10]}; the only broker is "
                    f"{self._identity.node_id}",
                )
