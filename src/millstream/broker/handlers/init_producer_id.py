"""InitProducerId: assigns a producer id, under which a producer numbers its batches so that retries are recognised.

If the connection has declared a producer group, the id belongs to that group permanently.
"""

from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.catalog.producer_ids import ProducerIds
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response

API = "InitProducerId"


class InitProducerIdHandler:
    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        if fields["transactional_id"] == "" or (fields["producer_id"] < 0) != (fields["producer_epoch"] < 0):
            return _failed(request.version, ErrorCode.INVALID_REQUEST)
        if fields["transactional_id"] is not None:
            # There are no transactions yet. All clients give up on this error; librdkafka retries most others.
            return _failed(request.version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return Work(self._answer(request.version, request.peer.producer_group))

    async def _answer(self, version: int, producer_group: str | None) -> bytes:
        try:
            producer_id = await self._producer_ids.next(producer_group)
        except MillstreamError as error:
            return _failed(version, error.code)
        return write_response(API, version, {"producer_id": producer_id, "producer_epoch": 0})


def _failed(version: int, code: ErrorCode) -> bytes:
    return write_response(API, version, {"error_code": code.number, "producer_id": -1, "producer_epoch": -1})
