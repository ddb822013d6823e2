"""ListOffsets: where a partition begins and ends, and which offset belongs to a time.

Finding a time opens batches in worker threads, which can take long. So few of these look-ups are under way at once, in
the order they came: the other threads stay free for reads and writes, however many times are asked for.
"""

import asyncio

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.partition_rows import answer_partitions
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    FoundOffset,
)
from millstream.partition.partition import Partition
from millstream.wire.messages import read_request
from millstream.wire.schema_readers import Fields

API = "ListOffsets"
TIMES_AT_ONCE_MAX = 2
_SINCE_VERSION = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_KNOWN_AT_ONCE = frozenset({LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED})


class ListOffsetsHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions
        self._turns = asyncio.Semaphore(TIMES_AT_ONCE_MAX)

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        asked = _Asked(self._partitions, self._turns, request.version)
        return Work(answer_partitions(API, request.version, fields["topics"], "name", asked.look_up), asked.hurry)


class _Asked:
    """One request: looks each time up once, and no more of them when nobody waits for the answer."""

    def __init__(self, partitions: PartitionLookup, turns: asyncio.Semaphore, version: int) -> None:
        self._partitions = partitions
        self._turns = turns
        self._version = version
        self._found: dict[tuple[Partition, int], FoundOffset | ErrorCode] = {}
        self._is_hurried = False

    def hurry(self) -> None:
        self._is_hurried = True

    async def look_up(self, topic: str, wanted: Fields) -> Fields:
        number = wanted["partition_index"]
        try:
            partition = find_partition(self._partitions, topic, number)
            partition.check_leader_epoch(wanted["current_leader_epoch"])
            self._check(wanted["timestamp"])
            found = await self._offset_for_time(partition, wanted["timestamp"])
        except MillstreamError as error:
            return {"partition_index": number, "error_code": error.code.number}
        return {
            "partition_index": number,
            "timestamp": found.timestamp,
            "offset": found.offset,
            "leader_epoch": found.leader_epoch,
        }

    def _check(self, timestamp_ms: int) -> None:
        """UNSUPPORTED_VERSION for a time that is none and has no meaning in this version."""
        if timestamp_ms < 0 and self._version < _SINCE_VERSION.get(timestamp_ms, self._version + 1):
            raise MillstreamError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"version {self._version} does not know what {timestamp_ms} asks for instead of a time",
            )

    async def _offset_for_time(self, partition: Partition, timestamp_ms: int) -> FoundOffset:
        if timestamp_ms in _KNOWN_AT_ONCE:
            return await partition.offset_for_time(timestamp_ms)
        found = self._found.get((partition, timestamp_ms))
        if found is None:
            found = self._found[partition, timestamp_ms] = await self._read(partition, timestamp_ms)
        if isinstance(found, ErrorCode):
            raise MillstreamError(found, f"what became of the look-up of {timestamp_ms}")
        return found

    async def _read(self, partition: Partition, timestamp_ms: int) -> FoundOffset | ErrorCode:
        async with self._turns:
            if self._is_hurried:
                return ErrorCode.REQUEST_TIMED_OUT
            try:
                return await partition.offset_for_time(timestamp_ms)
            except MillstreamError as error:
                return error.code
