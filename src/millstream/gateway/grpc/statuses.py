"""Converts errors to gRPC statuses with google.rpc details that name the error code."""

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status as RichStatus

from millstream.gateway.failures import detail_of, field_of, status_of
from millstream.gateway.grpc.v1.events_pb2 import Error
from millstream.model.errors import MillstreamError, UnreadableError

DOMAIN = "millstream"
DETAILS_KEY = "grpc-status-details-bin"
"""The trailer in which gRPC clients of all languages expect error details."""

_TEXT_MAX = 2_000
"""Longest error text. Clients refuse trailers over 8 KiB."""


def rich_status(error: MillstreamError) -> RichStatus:
    """Return the status with an ErrorInfo and, if a field caused the error, a BadRequest.

    For messages that cannot be read the ErrorInfo has their topic, partition and offset, and the offset to continue at.
    """
    text = detail_of(error)[:_TEXT_MAX]
    info = ErrorInfo(
        reason=error.code.name,
        domain=DOMAIN,
        metadata={"number": str(error.code.number), "retriable": str(error.code.retriable).lower()},
    )
    if isinstance(error, UnreadableError) and error.offset >= 0:
        info.metadata.update(
            topic=error.topic,
            partition=str(error.partition),
            offset=str(error.offset),
            next_offset=str(error.next_offset),
        )
    details: list[Message] = [info]
    field = field_of(error)
    if field is not None:
        violation = BadRequest.FieldViolation(field=field, description=text, reason=error.code.name)
        details.append(BadRequest(field_violations=[violation]))
    status = RichStatus(code=status_of(error).grpc, message=f"{error.code.name}: {text}")
    for each in details:
        packed = Any()
        packed.Pack(each)
        status.details.append(packed)
    return status


def error_of(error: MillstreamError) -> Error:
    """Return the error of one part of a request."""
    code = error.code
    return Error(name=code.name, number=code.number, detail=detail_of(error)[:_TEXT_MAX], retriable=code.retriable)
