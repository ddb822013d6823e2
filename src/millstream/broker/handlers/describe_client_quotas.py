"""DescribeClientQuotas: checks the filter and returns no quotas, since the broker has none."""

from millstream.broker.dispatch.request import BrokerRequest
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "DescribeClientQuotas"
_ENTITIES = ("user", "client-id", "ip")
_EXACT, _DEFAULT, _ANY = range(3)


def describe_client_quotas(request: BrokerRequest) -> bytes:
    fields = read_request(API, request.version, request.frame, request.body)
    try:
        _check(fields["components"])
    except MillstreamError as error:
        refused = {"error_code": error.code.number, "error_message": error.detail, "entries": None}
        return write_response(API, request.version, refused)
    return write_response(API, request.version, {"error_message": None, "entries": []})


def _check(components: list[Fields]) -> None:
    seen: dict[str, None] = {}
    for component in components:
        entity, kind, match = component["entity_type"], component["match_type"], component["match"]
        if entity not in _ENTITIES:
            raise MillstreamError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"unknown entity type {entity[:100]!r} (accepted: {', '.join(_ENTITIES)})",
            )
        if entity in seen:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"the request names {entity} more than once")
        seen[entity] = None
        if kind not in (_EXACT, _DEFAULT, _ANY):
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"{entity}: unknown match type {kind}; use 0, 1 or 2")
        if (kind == _EXACT) != (match is not None):
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST,
                f"{entity}: match type 0 (exact) requires a name; other match types accept none",
            )
