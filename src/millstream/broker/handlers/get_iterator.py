"""GetIterator: the coordinator returns an iterator of a partition and the address of the broker that reads it."""

from functools import partial

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import answer_later
from millstream.broker.signed_iterators import IteratorHandler, error_fields, given_fields
from millstream.groups.commands import GetIterator
from millstream.groups.responses import IteratorResponse
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request, write_response

API = "GetIterator"


class GetIteratorHandler(IteratorHandler):
    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        try:
            request.access.check_group(fields["group_id"])
            request.access.check_topic(fields["topic"])
        except MillstreamError as error:
            return write_response(API, version, error_fields(error.code, error.detail))
        command = GetIterator(
            group_id=fields["group_id"],
            client_id=fields["client_id"],
            topic=fields["topic"],
            partition=fields["partition"],
            messages_max=fields["max_messages"],
            in_flight_ms=fields["in_flight_ms"],
            start=fields["start"],
        )
        return answer_later(self._groups, command, IteratorResponse, partial(self._encode, version), request.access)

    def _encode(self, version: int, answer: IteratorResponse) -> bytes:
        fields = error_fields(answer.error, answer.detail)
        if answer.given is not None:
            fields["given"] = given_fields(answer.given, self._signer, self._cluster)
        return write_response(API, version, fields)
