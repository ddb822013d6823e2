"""DeleteGroups: deletes groups without members, together with their committed offsets."""

import logging

from millstream.broker.dispatch.open_changes import DELETED_GROUPS, NamedChange
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination, answer_to
from millstream.groups.commands import DeleteGroup
from millstream.groups.responses import EmptyResponse
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode
from millstream.process.client_events import log_client_event
from millstream.wire.messages import read_request, write_response

API = "DeleteGroups"
_log = logging.getLogger(__name__)


class DeleteGroupsHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        names = fields["groups_names"]
        change = NamedChange(DELETED_GROUPS, names)
        return Work(self._answer(request.version, names, request.access), change=change)

    async def _answer(self, version: int, names: list[str], access: Access) -> bytes:
        rows = []
        for name in dict.fromkeys(names):
            done = await answer_to(self._groups, DeleteGroup(name), EmptyResponse, access)
            if done.error is ErrorCode.NONE:
                log_client_event(_log, "group deleted", group=name)
            rows.append({"group_id": name, "error_code": done.error.number})
        return write_response(API, version, {"results": rows})
