"""ListOffsets: where a partition begins and ends, and which offset belongs to a time."""

import asyncio
from typing import Any

from penstock.broker.capabilities import PartitionLookup, find_partition
from penstock.broker.request import Request, Result, Work
from penstock.model.errors import PenstockError
from penstock.wire.messages import read_request, write_response

API = "ListOffsets"
ELEMENTS_MAX = 100_000
SLICE = 1_000
"""So many partitions are looked up before others get their turn."""


class ListOffsetsHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> Result:
        fields = read_request(API, request.version, request.frame, request.body, ELEMENTS_MAX)
        return Work(self._answer(request.version, fields))

    async def _answer(self, version: int, fields: dict[str, Any]) -> bytes:
        topics = []
        looked_up = 0
        for topic in fields["topics"]:
            rows = []
            for wanted in topic["partitions"]:
                rows.append(await self._look_up(topic["name"], wanted))
                looked_up += 1
                if looked_up % SLICE == 0:
                    await asyncio.sleep(0)
            topics.append({"name": topic["name"], "partitions": rows})
        return write_response(API, version, {"topics": topics})

    async def _look_up(self, topic: str, wanted: dict[str, Any]) -> dict[str, Any]:
        number = wanted["partition_index"]
        try:
            partition = find_partition(self._partitions, topic, number)
            partition.check_leader_epoch(wanted["current_leader_epoch"])
            found = await partition.offset_for_time(wanted["timestamp"])
        except PenstockError as error:
            return {"partition_index": number, "error_code": error.code.number}
        return {
            "partition_index": number,
            "timestamp": found.timestamp,
            "offset": found.offset,
            "leader_epoch": found.leader_epoch,
        }
