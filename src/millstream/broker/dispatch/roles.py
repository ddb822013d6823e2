"""What the role of a connection forbids, and how each API says so in its own form.

Rows of the dispatch table name the role that an API belongs to; APIs without one (metadata, offsets, administration)
are everybody's. A connection that declared another role is answered with POLICY_VIOLATION, or with ROLE_IS_FINAL where
the API is ours, and with the same words wherever there is room for them. Nothing of the request has had an effect then.
"""

from collections.abc import Callable, Mapping
from typing import Any

from millstream.broker.dispatch.request import Answer, BrokerRequest, CloseConnectionError
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, response_fields, write_response

OWN_KEYS_FROM = 1000


def refuse(key: int, api: str, request: BrokerRequest) -> Answer:
    """The answer to what the peer's role forbids; CloseConnectionError where the API has no form to say so."""
    code = ErrorCode.ROLE_IS_FINAL if key >= OWN_KEYS_FROM else ErrorCode.POLICY_VIOLATION
    error = MillstreamError(code, f"this connection is {request.peer}'s: {api} is not for it")
    there = response_fields(api, request.version)
    if "error_code" in there:
        told = {"error_code": code.number, "error_message": error.detail}
        fields: Mapping[str, Any] = {name: value for name, value in told.items() if name in there}
    elif api in _FORMS:
        fields = _FORMS[api](read_request(api, request.version, request.frame, request.body), error)
    else:
        raise CloseConnectionError(error.code, error.detail)
    return write_response(api, request.version, dict(fields))


def _produce(asked: Mapping[str, Any], error: MillstreamError) -> Mapping[str, Any]:
    if asked["acks"] == 0:
        raise CloseConnectionError(error.code, error.detail)

    def row(partition: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "index": partition["index"],
            "error_code": error.code.number,
            "error_message": error.detail,
            "base_offset": -1,
        }

    return {
        "responses": [
            {**_named(topic), "partition_responses": [row(each) for each in topic["partition_data"]]}
            for topic in asked["topic_data"]
        ]
    }


def _puts(asked: Mapping[str, Any], error: MillstreamError) -> Mapping[str, Any]:
    if asked["acks"] == 0:
        raise CloseConnectionError(error.code, error.detail)
    told = {"error_code": error.code.number, "error_message": error.detail}
    return {
        "topics": [
            {"name": topic["name"], "entries": [{"partition": each["partition"], **told} for each in topic["entries"]]}
            for topic in asked["topics"]
        ]
    }


def _fetch(asked: Mapping[str, Any], error: MillstreamError) -> Mapping[str, Any]:
    told = {"error_code": error.code.number, "high_watermark": -1}
    return {
        "responses": [
            {
                "topic": topic["topic"],
                "partitions": [{"partition_index": each["partition"], **told} for each in topic["partitions"]],
            }
            for topic in asked["topics"]
        ]
    }


def _offset_commit(asked: Mapping[str, Any], error: MillstreamError) -> Mapping[str, Any]:
    told = {"error_code": error.code.number}
    return {
        "topics": [
            {
                **_named(topic),
                "partitions": [{"partition_index": each["partition_index"], **told} for each in topic["partitions"]],
            }
            for topic in asked["topics"]
        ]
    }


def _offset_fetch(asked: Mapping[str, Any], error: MillstreamError) -> Mapping[str, Any]:
    told = {"error_code": error.code.number}
    partition = {"committed_offset": -1, "metadata": "", **told}
    return {
        "groups": [{"group_id": group["group_id"], "topics": [], **told} for group in asked["groups"]],
        "topics": [
            {
                "name": topic["name"],
                "partitions": [{"partition_index": number, **partition} for number in topic["partition_indexes"]],
            }
            for topic in asked["topics"] or ()
        ],
    }


def _named(topic: Mapping[str, Any]) -> dict[str, Any]:
    return {name: topic[name] for name in ("name", "topic_id") if name in topic}


_FORMS: Mapping[str, Callable[[Mapping[str, Any], MillstreamError], Mapping[str, Any]]] = {
    "Produce": _produce,
    "Puts": _puts,
    "Fetch": _fetch,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
}
"""Those versions that have no error code of the whole."""
