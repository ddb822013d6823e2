"""ListIterators: lists the iterators that one client of a group, or all its clients, have in flight.

The response contains the signed iterators only if the request names a client. It leaves out the iterators of topics
that the request may not use.
"""

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
        signer = self._signer if command.client_id is not None else None
        access = request.access

        def encode(answer: IteratorList) -> bytes:
            given = [each for each in answer.given if access.allows_topic(each.iterator.topic)]
            listed = [given_fields(each, signer, self._cluster) for each in given]
            return write_response(API, version, {**error_fields(answer.error, answer.detail), "given": listed})

        return answer_later(self._groups, command, IteratorList, encode, access)
