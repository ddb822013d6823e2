"""DescribeProducers: which idempotent producers a partition knows, and how far each of them is.

What it tells of is acknowledged: a writer that is told how far it was may leave that out for good.
"""

from collections.abc import Iterator
from typing import Any

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_groups
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
        return Work(self._answer(request.version, read_request(API, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        # Whoever names a partition often gets it once: the answer would otherwise be as large as they like.
        wanted: dict[str, dict[int, None]] = {}
        for topic in fields["topics"]:
            wanted.setdefault(topic["name"], {}).update(dict.fromkeys(topic["partition_indexes"]))
        write = response_element_writer(API, version, "topics")
        out = bytearray()
        for name, numbers in wanted.items():
            groups = [await self._partition(name, number) for number in numbers]
            rows = await encode_groups(API, version, ("topics", "partitions"), "active_producers", groups)
            write(out, {"name": name, "partitions": rows})
        return write_response(API, version, {"topics": EncodedArray(len(wanted), out)})

    async def _partition(self, topic: str, number: int) -> tuple[Fields, Iterator[Fields]]:
        row: dict[str, Any] = {"partition_index": number}
        try:
            producers = await find_partition(self._partitions, topic, number).active_producers()
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
