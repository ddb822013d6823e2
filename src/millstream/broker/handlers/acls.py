"""DescribeAcls, CreateAcls and DeleteAcls: answer SECURITY_DISABLED, since the broker has no ACLs yet."""

from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_rows
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_response

_DISABLED = {
    "error_code": ErrorCode.SECURITY_DISABLED.number,
    "error_message": "this broker does not support ACLs, so none can be listed or changed",
}


def describe_acls(request: BrokerRequest) -> bytes:
    read_request("DescribeAcls", request.version, request.frame, request.body)
    return write_response("DescribeAcls", request.version, _DISABLED)


def create_acls(request: BrokerRequest) -> Result:
    fields = read_request("CreateAcls", request.version, request.frame, request.body)
    return Work(_refuse("CreateAcls", request.version, "results", len(fields["creations"])))


def delete_acls(request: BrokerRequest) -> Result:
    fields = read_request("DeleteAcls", request.version, request.frame, request.body)
    return Work(_refuse("DeleteAcls", request.version, "filter_results", len(fields["filters"])))


async def _refuse(api: str, version: int, rows: str, count: int) -> bytes:
    return write_response(api, version, {rows: await encode_rows(api, version, (rows,), [_DISABLED] * count)})
