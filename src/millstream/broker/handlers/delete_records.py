"""DeleteRecords: advances the log start offsets of partitions and answers once these are durable."""

import asyncio
import logging

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.open_changes import DELETED_RECORDS, NamedChange
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import INTERNAL_PREFIX
from millstream.process.client_events import log_client_event
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "DeleteRecords"
AT_ONCE_MAX = 16
"""Maximum number of partitions that are processed concurrently. Each of them waits for the disk."""

_NO_OFFSET = -1
_log = logging.getLogger(__name__)


class DeleteRecordsHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        named = {(topic["name"], each["partition_index"]) for topic in fields["topics"] for each in topic["partitions"]}
        change = NamedChange(DELETED_RECORDS, named)
        return Work(self._answer(request.version, fields, request.access), change=change)

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        deadline = asyncio.get_running_loop().time() + max(0, fields["timeout_ms"]) / 1000
        topics = []
        for topic in fields["topics"]:
            name, wanted, rows = topic["name"], topic["partitions"], list[Fields]()
            for first in range(0, len(wanted), AT_ONCE_MAX):
                some = wanted[first : first + AT_ONCE_MAX]
                rows += await asyncio.gather(*(self._row(name, one, deadline, access) for one in some))
            topics.append({"name": name, "partitions": rows})
        return write_response(API, version, {"topics": topics})

    async def _row(self, topic: str, wanted: Fields, deadline: float, access: Access) -> Fields:
        number = wanted["partition_index"]
        try:
            if topic.startswith(INTERNAL_PREFIX):
                raise MillstreamError(ErrorCode.INVALID_TOPIC, f"{topic} is internal; its records cannot be deleted")
            partition = find_partition(self._partitions, topic, number, access)
            async with asyncio.timeout_at(deadline):
                before = partition.log.start_offset
                start = await partition.delete_records(wanted["offset"])
            if start > before:
                fields = {"start_offset": start, "start_offset_before": before}
                log_client_event(_log, "records deleted", topic=topic, partition=number, **fields)
        except TimeoutError:
            return _row(number, low_watermark=_NO_OFFSET, error=ErrorCode.REQUEST_TIMED_OUT)
        except MillstreamError as error:
            return _row(number, low_watermark=_NO_OFFSET, error=error.code)
        return _row(number, low_watermark=start, error=None)


def _row(number: int, *, low_watermark: int, error: ErrorCode | None) -> Fields:
    return {
        "partition_index": number,
        "low_watermark": low_watermark,
        "error_code": error.number if error is not None else 0,
    }
