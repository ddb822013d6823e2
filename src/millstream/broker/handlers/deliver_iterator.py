"""DeliverIterator: the coordinator stores how many messages of an iterator its client has delivered.

A later commit can then commit exactly these messages.
"""

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later
from millstream.broker.signed_iterators import IteratorSigner, error_fields, open_allowed
from millstream.groups.commands import DeliverIterator
from millstream.groups.responses import IteratorResponse
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request, write_response

API = "DeliverIterator"


class DeliverIteratorHandler:
    def __init__(self, groups: GroupCoordination, signer: IteratorSigner) -> None:
        self._groups = groups
        self._signer = signer

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        try:
            iterator = open_allowed(self._signer, fields, request.access)
        except MillstreamError as error:
            return write_response(API, version, error_fields(error.code, error.detail))
        command = DeliverIterator(fields["group_id"], fields["client_id"], iterator, fields["count"])

        def encode(answer: IteratorResponse) -> bytes:
            left_ms = 0 if answer.given is None else answer.given.left_ms
            return write_response(API, version, {**error_fields(answer.error, answer.detail), "left_ms": left_ms})

        return answer_later(self._groups, command, IteratorResponse, encode, request.access)
