"""ListGroups: lists the groups of this broker, optionally filtered by state and type."""

from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination
from millstream.broker.response_rows import encode_rows
from millstream.groups.commands import ListGroups
from millstream.model.authorization import Access
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "ListGroups"


class ListGroupsHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        command = ListGroups(tuple(fields["states_filter"]), tuple(fields["types_filter"]))
        listed = await self._groups.list_groups(command)
        rows = (
            {
                "group_id": each.group_id,
                "protocol_type": each.protocol_type,
                "group_state": each.state,
                "group_type": each.type,
            }
            for each in listed.groups
            if access.allows_group(each.group_id)
        )
        groups = await encode_rows(API, version, ("groups",), rows)
        return write_response(API, version, {"error_code": listed.error.number, "groups": groups})
