"""DescribeUserScramCredentials: reports every requested user as not found, since the broker has no logins yet."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_rows
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_response

API = "DescribeUserScramCredentials"


def describe_user_scram_credentials(request: BrokerRequest) -> Result:
    fields = read_request(API, request.version, request.frame, request.body)
    return Work(_answer(request.version, Counter(user["name"] for user in fields["users"] or ())))


async def _answer(version: int, users: Counter[str]) -> bytes:
    rows = await encode_rows(API, version, ("results",), _rows(users))
    return write_response(API, version, {"error_message": None, "results": rows})


def _rows(users: Counter[str]) -> Iterator[dict[str, Any]]:
    for user, times in users.items():
        if times > 1:
            error, text = ErrorCode.DUPLICATE_RESOURCE, f"the request names user {user[:100]!r} {times} times"
        else:
            error, text = ErrorCode.RESOURCE_NOT_FOUND, f"user {user[:100]!r} has no SCRAM credentials"
        yield {"user": user, "error_code": error.number, "error_message": text}
