"""Maps each row of the error table to an HTTP status and a gRPC status."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.errors import FieldError as FieldError  # Re-exported for the modules of the gateway.
from millstream.sdk.producing.failures import OutcomeUnknownError


class Status(NamedTuple):
    """One failure as an HTTP status and the number of a gRPC status code."""

    http: int
    grpc: int


_OK = Status(200, 0)
_INVALID = Status(422, 3)
_TOO_LARGE = Status(413, 3)
_UNKNOWN_OUTCOME = Status(504, 4)
_NOT_FOUND = Status(404, 5)
_EXISTS = Status(409, 6)
_FORBIDDEN = Status(403, 7)
_FULL = Status(503, 8)
_CONFLICT = Status(409, 9)
_FENCED = Status(409, 10)
_OUT_OF_RANGE = Status(416, 11)
_NOT_SERVED = Status(501, 12)
_INTERNAL = Status(500, 13)
_UNAVAILABLE = Status(503, 14)
_DAMAGED = Status(500, 15)
_UNAUTHENTICATED = Status(401, 16)
_INCOMPATIBLE = Status(502, 9)
_TOO_LARGE_TO_ANSWER = Status(422, 9)

_ROWS = {
    _OK: "NONE",
    _INVALID: """INVALID_FETCH_SIZE INVALID_TOPIC INVALID_REQUIRED_ACKS INVALID_GROUP_ID INVALID_SESSION_TIMEOUT
        INVALID_TIMESTAMP INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG
        INVALID_REQUEST INVALID_TRANSACTION_TIMEOUT UNSUPPORTED_COMPRESSION_TYPE INVALID_RECORD UNSUPPORTED_ASSIGNOR
        INVALID_REGULAR_EXPRESSION INVALID_SETTING INVALID_MESSAGE_ID INVALID_ITERATOR INVALID_CLUSTER""",
    _TOO_LARGE: "MESSAGE_TOO_LARGE RECORD_LIST_TOO_LARGE OFFSET_METADATA_TOO_LARGE INVALID_COMMIT_OFFSET_SIZE",
    _UNKNOWN_OUTCOME: "REQUEST_TIMED_OUT NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    _NOT_FOUND: """UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID GROUP_ID_NOT_FOUND RESOURCE_NOT_FOUND LOG_DIR_NOT_FOUND
        TRANSACTIONAL_ID_NOT_FOUND UNKNOWN_CLUSTER""",
    _EXISTS: """TOPIC_ALREADY_EXISTS DUPLICATE_RESOURCE DUPLICATE_SEQUENCE_NUMBER DUPLICATE_MESSAGE_ID
        CLUSTER_EXISTS""",
    _FORBIDDEN: """TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED POLICY_VIOLATION TOPIC_DELETION_DISABLED ROLE_IS_FINAL
        FOREIGN_ITERATOR""",
    _FULL: "GROUP_MAX_SIZE_REACHED PRODUCER_FULL GATEWAY_FULL QUERY_QUEUE_FULL",
    _CONFLICT: """INCONSISTENT_GROUP_PROTOCOL UNKNOWN_MEMBER_ID NON_EMPTY_GROUP GROUP_SUBSCRIBED_TO_TOPIC
        MEMBER_ID_REQUIRED NOT_OWNER REASSIGNMENT_IN_PROGRESS NO_REASSIGNMENT_IN_PROGRESS ELECTION_NOT_NEEDED
        INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING UNRELEASED_INSTANCE_ID DATA_DIRECTORY_IN_USE NOTHING_DELIVERED""",
    _FENCED: """ILLEGAL_GENERATION REBALANCE_IN_PROGRESS OUT_OF_ORDER_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH
        CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED UNKNOWN_PRODUCER_ID FENCED_LEADER_EPOCH
        UNKNOWN_LEADER_EPOCH FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH INCONSISTENT_TOPIC_ID
        ITERATOR_EXPIRED FENCED_ITERATOR ITERATOR_SETTLED""",
    _OUT_OF_RANGE: "OFFSET_OUT_OF_RANGE",
    _NOT_SERVED: """UNSUPPORTED_VERSION UNSUPPORTED_FOR_MESSAGE_FORMAT SECURITY_DISABLED MISMATCHED_ENDPOINT_TYPE
        UNSUPPORTED_ENDPOINT_TYPE NO_SUPERVISOR NOT_INSTALLED""",
    _INTERNAL: """UNKNOWN_SERVER_ERROR DATA_DIRECTORY_MISSING CATALOG_REFUSED ADDRESS_UNAVAILABLE CLIENT_MISUSED
        CLIENT_FAILED UNDECODABLE_VALUE PIPELINE_FAILED""",
    _UNAVAILABLE: """LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS
        COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NOT_ENOUGH_REPLICAS NOT_CONTROLLER KAFKA_STORAGE_ERROR
        FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH FETCH_SESSION_TOPIC_ID_ERROR
        PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE UNSTABLE_OFFSET_COMMIT SHUTTING_DOWN CLIENT_CLOSED
        CLUSTER_NOT_STARTED""",
    _DAMAGED: "CORRUPT_MESSAGE PARTITION_QUARANTINED UNDECODABLE_BATCH",
    _UNAUTHENTICATED: "UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE",
    _INCOMPATIBLE: "VERSION_WINDOW",
    _TOO_LARGE_TO_ANSWER: "RESPONSE_TOO_LARGE",
}
STATUSES = {ErrorCode[name]: status for status, names in _ROWS.items() for name in names.split()}

_FIELDS = {
    ErrorCode.INVALID_TOPIC: "topic",
    ErrorCode.INVALID_PARTITIONS: "partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "replication_factor",
    ErrorCode.INVALID_CONFIG: "settings",
    ErrorCode.INVALID_GROUP_ID: "group",
    ErrorCode.INVALID_TIMESTAMP: "timestamp",
    ErrorCode.INVALID_MESSAGE_ID: "message_id",
    ErrorCode.OFFSET_OUT_OF_RANGE: "offset",
    ErrorCode.UNKNOWN_CLUSTER: "cluster",
    ErrorCode.INVALID_ITERATOR: "iterator",
}


_QUOTED_PATH = re.compile(r"(?P<quote>['\"`])/(?:[^'\"`]*/)?(?P<name>[^'\"`/]+)(?P=quote)")
_PATH = re.compile(r"(?<![\w./~-])/(?:[^\s/:;,'\"`()\[\]]+/)*(?P<name>[^\s/:;,'\"`()\[\]]+)")


class TitledError(FieldError):
    """A field error with a title that describes the problem better than the error table's text."""

    def __init__(self, code: ErrorCode, detail: str, field: str, *, title: str) -> None:
        super().__init__(code, detail, field)
        self.title = title


def invalid(field: str, detail: str, title: str = "the value of a field is not valid") -> FieldError:
    """Make an INVALID_REQUEST that names the field."""
    return TitledError(ErrorCode.INVALID_REQUEST, f"{field}: {detail}", field, title=title)


def missing(field: str, detail: str) -> FieldError:
    """Make an INVALID_REQUEST for a required field that the request does not have."""
    return invalid(field, f"missing; {detail}", "a required field is missing")


def contradictory(field: str, detail: str) -> FieldError:
    """Make an INVALID_REQUEST for a field that the request's other fields do not allow."""
    return invalid(field, detail, "fields of the request contradict each other")


def invalid_position(field: str, detail: str) -> FieldError:
    """Make the error for a value that is not a start position or a time, as the SDK and the command line report it."""
    return TitledError(
        ErrorCode.INVALID_SETTING, f"{field}: {detail}", field, title="the start position or time is not valid"
    )


@contextmanager
def setting_failures(chosen: Collection[str], unset: Collection[str]) -> Iterator[None]:
    """Check that each setting is named once, and name the field of a refused one: `set.NAME`, or `unset`."""
    for name in chosen:
        if name in unset:
            raise contradictory("unset", f"{name[:100]!r} is also in `set`")
    if len(set(unset)) < len(unset):
        raise invalid("unset", "a setting is repeated")
    try:
        yield
    except MillstreamError as error:
        titles = {
            ErrorCode.INVALID_CONFIG: ErrorCode.INVALID_CONFIG.meaning,
            ErrorCode.INVALID_REQUEST: "the setting cannot be changed while the broker runs",
        }
        if error.code not in titles:
            raise
        is_unset = not chosen or any(name in error.detail for name in unset)
        field = "unset" if is_unset else setting_field("set", chosen, error.detail)
        raise TitledError(error.code, error.detail, field, title=titles[error.code]) from error


def setting_field(field: str, names: Collection[str], detail: str) -> str:
    """Return the path of the setting that an error names, such as `settings.retention.ms`, or else `field`."""
    named = [name for name in names if name and name in detail]
    return f"{field}.{min(named, key=lambda name: (detail.find(name), -len(name)))}" if named else field


def status_of(error: MillstreamError) -> Status:
    """Return the HTTP and gRPC status of a failure.

    A write with an unknown outcome is always 504, whatever its code.
    """
    return _UNKNOWN_OUTCOME if isinstance(error, OutcomeUnknownError) else STATUSES[error.code]


def detail_of(error: MillstreamError) -> str:
    """Return the detail for a client. The error of a server names files without their directories.

    Other errors are about the request, whose paths are the client's own.
    """
    if status_of(error).http < HTTPStatus.INTERNAL_SERVER_ERROR:
        return error.detail
    return _PATH.sub(r".../\g<name>", _QUOTED_PATH.sub(r"\g<quote>.../\g<name>\g<quote>", error.detail))


def field_of(error: MillstreamError) -> str | None:
    """Return the request field that caused the failure, or None if it is not known."""
    return error.field if isinstance(error, FieldError) else _FIELDS.get(error.code)
