"""OffsetFetch: how far a group has read. What was never committed is offset -1, of unknown groups too."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination, TopicNames, answer_to
from millstream.groups.commands import FetchOffsets
from millstream.groups.responses import CommittedOffset, OffsetsResponse
from millstream.model.errors import ErrorCode
from millstream.model.names import NO_TOPIC_ID
from millstream.wire.messages import read_request, response_element_writer, write_response
from millstream.wire.schema_readers import Fields
from millstream.wire.schema_writers import EncodedArray

API = "OffsetFetch"
SLICE = 1_000
"""So many partitions are encoded before others get their turn."""

_ERROR_FROM = 2
_MANY_FROM = 8
_IDS_FROM = 10
_NOTHING = CommittedOffset(-1, -1, "", -1)


class _Wanted(NamedTuple):
    """A topic and those of its partitions that are asked for; without a name when nobody knows its id."""

    name: str | None
    topic_id: UUID
    partitions: list[int]


class OffsetFetchHandler:
    def __init__(self, groups: GroupCoordination, topics: TopicNames) -> None:
        self._groups = groups
        self._topics = topics

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        if version < _MANY_FROM:
            return write_response(API, version, await self._group(version, fields))
        groups = [{"group_id": each["group_id"], **await self._group(version, each)} for each in fields["groups"]]
        return write_response(API, version, {"groups": groups})

    async def _group(self, version: int, asked: Fields) -> dict[str, Any]:
        wanted = None if asked["topics"] is None else [self._wanted(version, each) for each in asked["topics"]]
        places = None
        if wanted is not None:
            places = tuple((each.name, number) for each in wanted if each.name for number in each.partitions)
        member_id = asked.get("member_id")
        command = FetchOffsets(asked["group_id"], places, member_id, asked.get("member_epoch", -1))
        found = await answer_to(self._groups, command, OffsetsResponse)
        if found.error is not ErrorCode.NONE and version >= _ERROR_FROM:
            return {"error_code": found.error.number}
        if wanted is None:
            wanted = self._committed(version, found.offsets)
        return {"topics": [await self._encode(version, each, found) for each in wanted]}

    def _wanted(self, version: int, asked: Fields) -> _Wanted:
        if version < _IDS_FROM:
            return _Wanted(asked["name"], NO_TOPIC_ID, asked["partition_indexes"])
        topic = self._topics.topic_by_id(asked["topic_id"])
        return _Wanted(topic.name if topic else None, asked["topic_id"], asked["partition_indexes"])

    def _committed(self, version: int, places: Iterable[tuple[str, int]]) -> list[_Wanted]:
        """Everything that a group has committed; by id only what has one."""
        numbers: dict[str, list[int]] = {}
        for name, number in sorted(places):
            numbers.setdefault(name, []).append(number)
        wanted = []
        for name, each in numbers.items():
            topic = self._topics.topic(name)
            if topic is not None or version < _IDS_FROM:
                wanted.append(_Wanted(name, topic.topic_id if topic else NO_TOPIC_ID, each))
        return wanted

    async def _encode(self, version: int, topic: _Wanted, found: OffsetsResponse) -> dict[str, Any]:
        path = ("groups", "topics", "partitions") if version >= _MANY_FROM else ("topics", "partitions")
        write_row = response_element_writer(API, version, *path)
        error = found.error if topic.name is not None else ErrorCode.UNKNOWN_TOPIC_ID
        rows = bytearray()
        for done, number in enumerate(topic.partitions, 1):
            committed = found.offsets.get((topic.name or "", number), _NOTHING)
            write_row(
                rows,
                {
                    "partition_index": number,
                    "committed_offset": committed.offset,
                    "committed_leader_epoch": committed.leader_epoch,
                    "metadata": committed.metadata,
                    "error_code": error.number,
                },
            )
            if done % SLICE == 0:
                await asyncio.sleep(0)
        naming = {"topic_id": topic.topic_id} if version >= _IDS_FROM else {"name": topic.name}
        return {**naming, "partitions": EncodedArray(len(topic.partitions), rows)}
