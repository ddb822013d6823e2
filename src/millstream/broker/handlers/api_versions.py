"""ApiVersions: what this broker serves, derived from the dispatch table."""

from collections.abc import Iterable

from millstream.broker.dispatch.dispatch_table import ApiRow
from millstream.broker.dispatch.request import BrokerRequest
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_response

API = "ApiVersions"


class ApiVersionsHandler:
    """The table has a row for this handler, so the rows are handed over once all of them exist."""

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


def refusal(key: int, first: int, last: int) -> bytes:
    """What answers a version of ApiVersions that is not served: version 0, so that every client can read it, with the
    range that is served, so that it can try again."""
    own = {"api_key": key, "min_version": first, "max_version": last}
    return write_response(API, 0, {"error_code": ErrorCode.UNSUPPORTED_VERSION.number, "api_keys": [own]})


def _range(row: ApiRow) -> dict[str, int]:
    first = row.first if row.advertised_first is None else row.advertised_first
    return {"api_key": row.key, "min_version": first, "max_version": row.last}
