"""DescribeProducers: lists the idempotent producers of a partition and the last sequence number of each.

The reported sequence numbers are acknowledged, so a writer that resumes may skip the rows before them.
"""

from collections.abc import Iterator
from typing import Any

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_groups
from millstream.model.authorization import Access
from millstream.model.errors import MillstreamError
from millstream.partition.producers import ActiveProducer
from millstream.seams.clock import Clock
from millstream.wire.messages import read_request, response_element_writer, write_response
from millstream.wire.schema_readers import Fields
from millstream.wire.schema_writers import EncodedArray

API = "DescribeProducers"
_NO_COORDINATOR = -1


class DescribeProducersHandler:
    def __init__(self, partitions: PartitionLookup, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        # Duplicates are dropped: they would let a small request cause a response of any size.
        wanted: dict[str, dict[int, None]] = {}
        for topic in fields["topics"]:
            wanted.setdefault(topic["name"], {}).update(dict.fromkeys(topic["partition_indexes"]))
        write = response_element_writer(API, version, "topics")
        out = bytearray()
        for name, numbers in wanted.items():
            groups = [await self._partition(name, number, access) for number in numbers]
            rows = await encode_groups(API, version, ("topics", "partitions"), "active_producers", groups)
            write(out, {"name": name, "partitions": rows})
        return write_response(API, version, {"topics": EncodedArray(len(wanted), out)})

    async def _partition(self, topic: str, number: int, access: Access) -> tuple[Fields, Iterator[Fields]]:
        row: dict[str, Any] = {"partition_index": number}
        try:
            producers = await find_partition(self._partitions, topic, number, access).active_producers()
        except MillstreamError as error:
            return row | {"error_code": error.code.number, "error_message": error.detail}, iter(())
        return row, map(self._row, producers)

    def _row(self, producer: ActiveProducer) -> dict[str, Any]:
        return {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_timestamp": self._clock.wall_ms() - producer.silent_ms,
            "coordinator_epoch": _NO_COORDINATOR,
        }
