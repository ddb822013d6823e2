"""ListIterators: what a client has in flight, or all clients of a group. Only who names a client is given its
iterators."""

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import answer_later
from millstream.broker.signed_iterators import IteratorHandler, error_fields, given_fields
from millstream.groups.commands import ListIterators
from millstream.groups.responses import IteratorList
from millstream.wire.messages import read_request, write_response

API = "ListIterators"


class ListIteratorsHandler(IteratorHandler):
    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        command = ListIterators(fields["group_id"], fields["client_id"])
        seal = self._seal if command.client_id is not None else None

        def encode(answer: IteratorList) -> bytes:
            told = [given_fields(given, seal, self._server) for given in answer.given]
            return write_response(API, version, {**error_fields(answer.error, answer.detail), "given": told})

        return answer_later(self._groups, command, IteratorList, encode)
