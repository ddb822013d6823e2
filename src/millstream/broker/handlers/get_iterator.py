"""GetIterator: the coordinator gives out the iterator of a partition, and says where it is read."""

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import answer_later
from millstream.broker.signed_iterators import IteratorHandler, error_fields, given_fields
from millstream.groups.commands import GetIterator
from millstream.groups.responses import IteratorResponse
from millstream.wire.messages import read_request, write_response

API = "GetIterator"


class GetIteratorHandler(IteratorHandler):
    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        command = GetIterator(
            group_id=fields["group_id"],
            client_id=fields["client_id"],
            topic=fields["topic"],
            partition=fields["partition"],
            messages_max=fields["max_messages"],
            in_flight_ms=fields["in_flight_ms"],
            start=fields["start"],
        )
        return answer_later(self._groups, command, IteratorResponse, lambda answer: self._encode(version, answer))

    def _encode(self, version: int, answer: IteratorResponse) -> bytes:
        fields = error_fields(answer.error, answer.detail)
        if answer.given is not None:
            fields["given"] = given_fields(answer.given, self._seal, self._server)
        return write_response(API, version, fields)
