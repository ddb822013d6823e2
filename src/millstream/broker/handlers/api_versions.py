"""ApiVersions: lists the APIs and versions of this broker, from the dispatch table."""

from collections.abc import Iterable

from millstream.broker.dispatch.dispatch_table import ApiRow
from millstream.broker.dispatch.request import BrokerRequest
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_kept_response, write_response

API = "ApiVersions"


class ApiVersionsHandler:
    """Lists the rows that `announce` sets. It is called last, because this handler has a row itself."""

    def __init__(self) -> None:
        self._rows: tuple[ApiRow, ...] = ()
        self._answers: dict[int, bytes] = {}

    def announce(self, rows: Iterable[ApiRow]) -> None:
        self._rows = tuple(sorted(rows, key=lambda row: row.key))
        self._answers.clear()

    def __call__(self, request: BrokerRequest) -> bytes:
        read_request(API, request.version, request.frame, request.body)
        answer = self._answers.get(request.version)
        if answer is None:
            answer = write_response(API, request.version, {"api_keys": [_range(row) for row in self._rows]})
            self._answers[request.version] = answer
        return answer


def refusal(key: int, *, first: int, last: int) -> bytes:
    """Return the response to a version of ApiVersions that is not served.

    It is in version 0, which every client can read, and names the served versions, so that the client can retry.
    """
    own = {"api_key": key, "min_version": first, "max_version": last}
    return write_kept_response(API, 0, {"error_code": ErrorCode.UNSUPPORTED_VERSION.number, "api_keys": [own]})


def _range(row: ApiRow) -> dict[str, int]:
    first = row.first if row.advertised_first is None else row.advertised_first
    return {"api_key": row.key, "min_version": first, "max_version": row.last}
