"""Produce: append each partition's batch; answer when all of them are committed (see
`millstream.broker.append_requests`)."""

from millstream.broker.append_requests import ACKS, AppendRequest, PendingAppend, check_acks, failed
from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.produce import ProduceRequest, ProduceResult, parse_produce_request, write_produce_response


class ProduceHandler:
    def __init__(self, partitions: PartitionLookup, appending: AppendRequest) -> None:
        self._partitions = partitions
        self._appending = appending

    def __call__(self, request: BrokerRequest) -> Result:
        produce = parse_produce_request(request.version, request.frame, request.body)
        waiting = PendingAppend(write_produce_response, request.version, self._appending.deadlines)
        self._append_all(produce, waiting)
        return waiting.result(produce.acks, produce.timeout_ms)

    def _append_all(self, produce: ProduceRequest, waiting: PendingAppend) -> None:
        acks, is_transactional = produce.acks, produce.transactional_id is not None
        for topic, partitions in produce.topics:
            results: list[ProduceResult] = []
            waiting.results.append((topic, results))
            for number, records in partitions:
                try:
                    if acks not in ACKS:
                        check_acks(acks)
                    if is_transactional:
                        raise MillstreamError(ErrorCode.INVALID_TXN_STATE, "this broker has no transactions yet")
                    partition = find_partition(self._partitions, topic, number)
                    self._appending.append(waiting, results, partition, records, acks)
                except MillstreamError as error:
                    results.append(failed(number, error))
