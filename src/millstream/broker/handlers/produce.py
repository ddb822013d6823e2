"""Produce: appends the batch of each partition and answers once all are acknowledged (see `append_response`)."""

from millstream.broker.append_response import ACKS, AppendResponse, check_acks, failed
from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.appender import Appender
from millstream.partition.pending_appends import AppendDeadlines
from millstream.wire.produce import ProduceRequest, ProduceResult, parse_produce_request, write_produce_response


class ProduceHandler:
    def __init__(self, partitions: PartitionLookup, appender: Appender, deadlines: AppendDeadlines) -> None:
        self._partitions = partitions
        self._appender = appender
        self._deadlines = deadlines

    def __call__(self, request: BrokerRequest) -> Result:
        produce = parse_produce_request(request.version, request.frame, request.body)
        response = AppendResponse(write_produce_response, request.version, self._deadlines, self._partitions)
        self._append_all(produce, response, request)
        return response.result(produce.acks, timeout_ms=produce.timeout_ms)

    def _append_all(self, produce: ProduceRequest, response: AppendResponse, request: BrokerRequest) -> None:
        access, sender = request.access, request.peer.number
        acks, is_transactional = produce.acks, produce.transactional_id is not None
        for topic, partitions in produce.topics:
            results: list[ProduceResult] = []
            response.results.append((topic, results))
            for number, records in partitions:
                try:
                    if acks not in ACKS:
                        check_acks(acks)
                    if is_transactional:
                        raise MillstreamError(
                            ErrorCode.INVALID_TXN_STATE,
                            "transactions are not supported; produce without transactional.id",
                        )
                    partition = find_partition(self._partitions, topic, number, access)
                    response.add(results, number, self._appender.append(partition, records, acks, sender=sender))
                except MillstreamError as error:
                    results.append(failed(number, error))
