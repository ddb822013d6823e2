"""How failures are told over gRPC: the status of the one table, with the failure's name in google.rpc's own details."""

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status as RichStatus

from millstream.gateway.failures import field_of, status_of
from millstream.gateway.grpc.v1.events_pb2 import Error
from millstream.model.errors import MillstreamError

DOMAIN = "millstream"
DETAILS_KEY = "grpc-status-details-bin"
"""The trailer in which clients of all languages look for details."""

_TEXT_MAX = 2_000
"""Trailers are small: clients refuse more than 8 KiB of them."""


def rich_status(error: MillstreamError) -> RichStatus:
    """The status with an ErrorInfo and, where a field is to blame, a BadRequest."""
    text = error.detail[:_TEXT_MAX]
    info = ErrorInfo(
        reason=error.code.name,
        domain=DOMAIN,
        metadata={"number": str(error.code.number), "retriable": str(error.code.retriable).lower()},
    )
    details: list[Message] = [info]
    field = field_of(error)
    if field is not None:
        violation = BadRequest.FieldViolation(field=field, description=text, reason=error.code.name)
        details.append(BadRequest(field_violations=[violation]))
    told = RichStatus(code=status_of(error).grpc, message=f"{error.code.name}: {text}")
    for each in details:
        packed = Any()
        packed.Pack(each)
        told.details.append(packed)
    return told


def error_of(error: MillstreamError) -> Error:
    """A failure of one part of a request."""
    code = error.code
    return Error(name=code.name, number=code.number, detail=error.detail[:_TEXT_MAX], retriable=code.retriable)
