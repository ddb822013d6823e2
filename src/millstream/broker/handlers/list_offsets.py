"""ListOffsets: returns the first and last offset of a partition, or the offset of a timestamp.

A timestamp lookup decodes batches in worker threads and can take long. Therefore only `TIMES_AT_ONCE_MAX` lookups run
at once, in the order of their requests. The other threads stay free for reads and writes.
"""

import asyncio

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.partition_rows import answer_partitions
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.leadership import Leadership
from millstream.partition.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    FoundOffset,
)
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
        lookups = _Lookups(self._partitions, self._turns, request)
        return Work(answer_partitions(API, request.version, fields["topics"], "name", lookups.look_up), lookups.hurry)


class _Lookups:
    """The lookups of one request. Each timestamp is looked up once. After `hurry` no further lookup starts."""

    def __init__(self, partitions: PartitionLookup, turns: asyncio.Semaphore, request: BrokerRequest) -> None:
        self._partitions = partitions
        self._turns = turns
        self._version = request.version
        self._access = request.access
        self._found: dict[tuple[Leadership, int], FoundOffset | ErrorCode] = {}
        self._is_hurried = False

    def hurry(self) -> None:
        self._is_hurried = True

    async def look_up(self, topic: str, wanted: Fields) -> Fields:
        number = wanted["partition_index"]
        try:
            partition = find_partition(self._partitions, topic, number, self._access)
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
        """Raise UNSUPPORTED_VERSION for a negative timestamp that this version does not define."""
        if timestamp_ms < 0 and self._version < _SINCE_VERSION.get(timestamp_ms, self._version + 1):
            raise MillstreamError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {timestamp_ms} has no meaning in version {self._version}",
            )

    async def _offset_for_time(self, partition: Leadership, timestamp_ms: int) -> FoundOffset:
        if timestamp_ms in _KNOWN_AT_ONCE:
            return await partition.offset_for_time(timestamp_ms)
        found = self._found.get((partition, timestamp_ms))
        if found is None:
            found = self._found[partition, timestamp_ms] = await self._read(partition, timestamp_ms)
        if isinstance(found, ErrorCode):
            raise MillstreamError(found, f"the lookup of timestamp {timestamp_ms} failed: {found.meaning}")
        return found

    async def _read(self, partition: Leadership, timestamp_ms: int) -> FoundOffset | ErrorCode:
        async with self._turns:
            if self._is_hurried:
                return ErrorCode.REQUEST_TIMED_OUT
            try:
                return await partition.offset_for_time(timestamp_ms)
            except MillstreamError as error:
                return error.code
