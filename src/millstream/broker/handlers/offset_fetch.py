"""OffsetFetch: returns the committed offsets of groups. A missing offset is -1, also for unknown groups."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from millstream.broker.dispatch.capabilities import ImageSource
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination, answer_to, find_topic
from millstream.groups.commands import FetchOffsets
from millstream.groups.responses import CommittedOffset, OffsetsResponse
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset, TopicId
from millstream.model.limits import NO_LEADER_EPOCH
from millstream.model.names import NO_TOPIC_ID
from millstream.wire.messages import read_request, response_element_writer, write_response
from millstream.wire.schema_readers import Fields
from millstream.wire.schema_writers import EncodedArray

API = "OffsetFetch"
SLICE = 1_000
"""Partitions that are encoded before the event loop runs other work."""

_ERROR_FROM = 2
_MANY_FROM = 8
_IDS_FROM = 10
_NOTHING = CommittedOffset(Offset(-1), NO_LEADER_EPOCH, "", -1)


class _Wanted(NamedTuple):
    """A topic and its requested partitions. `error` is the reason why the topic cannot be used, if there is one."""

    name: str
    topic_id: TopicId
    partitions: list[int]
    error: ErrorCode = ErrorCode.NONE


class OffsetFetchHandler:
    def __init__(self, groups: GroupCoordination, cluster: ImageSource) -> None:
        self._groups = groups
        self._cluster = cluster

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        if version < _MANY_FROM:
            return write_response(API, version, await self._group(version, fields, access))
        groups = [
            {"group_id": each["group_id"], **await self._group(version, each, access)} for each in fields["groups"]
        ]
        return write_response(API, version, {"groups": groups})

    async def _group(self, version: int, request: Fields, access: Access) -> dict[str, Any]:
        wanted, partitions = None, None
        if request["topics"] is not None:
            wanted = [self._wanted(version, each, access) for each in request["topics"]]
            usable = (each for each in wanted if each.error is ErrorCode.NONE)
            partitions = tuple((each.name, number) for each in usable for number in each.partitions)
        member_id = request.get("member_id")
        command = FetchOffsets(request["group_id"], partitions, member_id, request.get("member_epoch", -1))
        found = await answer_to(self._groups, command, OffsetsResponse, access)
        if found.error is not ErrorCode.NONE and version >= _ERROR_FROM:
            return {"error_code": found.error.number}
        if wanted is None:
            wanted = self._committed(version, found.offsets, access)
        return {"topics": [await self._encode(version, each, found) for each in wanted]}

    def _wanted(self, version: int, request: Fields, access: Access) -> _Wanted:
        numbers = request["partition_indexes"]
        try:
            if version >= _IDS_FROM:
                return _Wanted(
                    find_topic(self._cluster.image, request["topic_id"], access).name, request["topic_id"], numbers
                )
            access.check_topic(request["name"])
        except MillstreamError as problem:
            return _Wanted(request.get("name", ""), request.get("topic_id", NO_TOPIC_ID), numbers, problem.code)
        return _Wanted(request["name"], NO_TOPIC_ID, numbers)

    def _committed(self, version: int, partitions: Iterable[tuple[str, int]], access: Access) -> list[_Wanted]:
        """Return the partitions with committed offsets, except those of topics that the request may not see.

        Versions that name topics by id leave out deleted topics.
        """
        numbers: dict[str, list[int]] = {}
        for name, number in sorted(partitions):
            numbers.setdefault(name, []).append(number)
        wanted = []
        for name, each in numbers.items():
            if not access.allows_topic(name):
                continue
            topic = self._cluster.image.topic(name)
            if topic is not None or version < _IDS_FROM:
                wanted.append(_Wanted(name, topic.topic_id if topic else NO_TOPIC_ID, each))
        return wanted

    async def _encode(self, version: int, topic: _Wanted, found: OffsetsResponse) -> dict[str, Any]:
        path = ("groups", "topics", "partitions") if version >= _MANY_FROM else ("topics", "partitions")
        write_row = response_element_writer(API, version, *path)
        error = topic.error if found.error is ErrorCode.NONE else found.error
        rows = bytearray()
        for done, number in enumerate(topic.partitions, 1):
            committed = found.offsets.get((topic.name, number), _NOTHING)
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
