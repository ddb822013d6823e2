"""Puts: one of Millstream's own keys. As Produce, where the caller may give the hash that decides the partition, and
ids under which messages are stored once (see `millstream.broker.append_requests` for what both have in common)."""

from millstream.broker.append_requests import AppendRequest, PendingAppend, Results, check_acks, failed
from millstream.broker.dispatch.capabilities import TopicPartitions, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.model.errors import MillstreamError
from millstream.partition.partition import Partition
from millstream.wire.produce import ProduceResult
from millstream.wire.puts import BY_HASH, PutsEntry, parse_puts_request, write_puts_response


class PutsHandler:
    def __init__(self, partitions: TopicPartitions, appending: AppendRequest) -> None:
        self._partitions = partitions
        self._appending = appending

    def __call__(self, request: BrokerRequest) -> Result:
        puts = parse_puts_request(request.frame, request.body)
        waiting = PendingAppend(_write, request.version, self._appending.deadlines)
        for topic, entries in puts.topics:
            results: list[ProduceResult] = []
            waiting.results.append((topic, results))
            for entry in entries:
                number = entry.partition
                try:
                    check_acks(puts.acks)
                    partition = self._partition(topic, entry)
                    number = partition.number
                    self._appending.put(waiting, results, partition, entry, puts.acks)
                except MillstreamError as error:
                    results.append(failed(number, error))
        return waiting.result(puts.acks, puts.timeout_ms)

    def _partition(self, topic: str, entry: PutsEntry) -> Partition:
        if entry.partition == BY_HASH and (served := self._partitions.of(topic)):
            return served[entry.hash % len(served)]
        return find_partition(self._partitions, topic, entry.partition)


def _write(version: int, results: Results) -> bytes:
    return write_puts_response([(str(topic), entries) for topic, entries in results])
