"""CommitIterator: the coordinator stores how far a client has read and returns the next iterator."""

from functools import partial

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import answer_later
from millstream.broker.signed_iterators import IteratorHandler, error_fields, given_fields, open_allowed
from millstream.groups.commands import CommitIterator
from millstream.groups.responses import IteratorResponse
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request, write_response

API = "CommitIterator"


class CommitIteratorHandler(IteratorHandler):
    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        try:
            iterator = open_allowed(self._signer, fields, request.access)
        except MillstreamError as error:
            return write_response(API, version, error_fields(error.code, error.detail))
        command = CommitIterator(fields["group_id"], fields["client_id"], iterator, fields["count"])
        return answer_later(self._groups, command, IteratorResponse, partial(self._encode, version), request.access)

    def _encode(self, version: int, answer: IteratorResponse) -> bytes:
        fields = error_fields(answer.error, answer.detail) | {"position": answer.position}
        if answer.given is not None:
            fields["given"] = given_fields(answer.given, self._signer, self._cluster)
        return write_response(API, version, fields)
