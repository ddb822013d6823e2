"""Puts, a Millstream API: appends batches like Produce, optionally by key hash and with message ids.

The broker chooses the partition from the hash and stores each message id once. `append_response` builds the response
of both APIs.
"""

from millstream.broker.append_response import AppendResponse, Results, check_acks, failed
from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition, partition_by_hash
from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.model.errors import MillstreamError
from millstream.partition.appender import Appender
from millstream.partition.pending_appends import AppendDeadlines
from millstream.wire.produce import ProduceResult
from millstream.wire.puts import BY_HASH, parse_puts_request, write_puts_response


class PutsHandler:
    def __init__(self, partitions: PartitionLookup, appender: Appender, deadlines: AppendDeadlines) -> None:
        self._partitions = partitions
        self._appender = appender
        self._deadlines = deadlines

    def __call__(self, request: BrokerRequest) -> Result:
        access, sender = request.access, request.peer.number
        puts = parse_puts_request(request.frame, request.body)
        response = AppendResponse(_write, request.version, self._deadlines, self._partitions)
        for topic, entries in puts.topics:
            results: list[ProduceResult] = []
            response.results.append((topic, results))
            for entry in entries:
                number = entry.partition
                try:
                    check_acks(puts.acks)
                    if number == BY_HASH:
                        number = partition_by_hash(self._partitions.image, topic, entry.hash, access)
                    partition = find_partition(self._partitions, topic, number, access)
                    appended = self._appender.put(partition, entry.records, entry.message_ids, puts.acks, sender=sender)
                    response.add(results, number, appended)
                except MillstreamError as error:
                    results.append(failed(number, error))
        return response.result(puts.acks, timeout_ms=puts.timeout_ms)


def _write(version: int, results: Results) -> bytes:
    return write_puts_response([(str(topic), entries) for topic, entries in results])
