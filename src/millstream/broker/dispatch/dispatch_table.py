"""Holds one row per API, and derives dispatch, rights, size limits and ApiVersions from the rows.

The check of an API's right is part of its routes: it runs before the handler decodes the request. If the authorizer
grants everything, the routes contain no checks.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from millstream.broker.dispatch.api_stats import ApiStats
from millstream.broker.dispatch.open_changes import TOPICS, TargetsOf
from millstream.broker.dispatch.refusals import refused
from millstream.broker.dispatch.request import BrokerRequest, Handler, Result
from millstream.broker.dispatch.request_log import logged, logs_requests
from millstream.model.authorization import ALLOW_ALL, Access, Authorizer
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import Right
from millstream.model.roles import Role
from millstream.seams.clock import SystemClock
from millstream.wire.framing import has_flexible_response_header
from millstream.wire.messages import is_flexible

_CLOCK = SystemClock()
SMALL_BYTES_MAX = 1024 * 1024
"""Maximum size of a request of an API without records. A row may set another limit."""


class ApiRow(NamedTuple):
    """One API, served in versions `first` to `last`. `advertised_first` may be lower, for clients that require it."""

    key: int
    api: str
    first: int
    last: int
    right: Right
    handle: Handler
    bytes_max: int = SMALL_BYTES_MAX
    advertised_first: int | None = None
    refusal: bytes | None = None
    """The response body, in version 0, to a version that is not served. Without one the connection is closed."""
    role: Role | None = None
    """The role that may use this API. Connections of another role are refused (see `dispatch.roles`)."""
    by_resource: bool = False
    """True if the handler checks the rights on each resource. Every principal then gets a response, in which resources
    without the right are refused or left out."""
    refused_with: ErrorCode | None = None
    """The error for a principal without the right, if it differs from the error of the right."""
    waits_for: int = TOPICS
    """The kinds of open changes that a request of this API waits for (see `dispatch.open_changes`)."""
    targets: TargetsOf | None = None
    """Returns the partitions or groups whose changes a request waits for. If None, it waits for changes of any."""


class ApiRoute(NamedTuple):
    """The part of a row that one API version needs."""

    api: str
    handle: Handler
    bytes_max: int
    flexible: bool
    flexible_answer: bool
    role: Role | None
    waits_for: int
    targets: TargetsOf | None
    observe: Callable[[float], None]
    """Counts an answered request with its duration in seconds."""


class DispatchTable:
    """The rows by API key. Routes are created when a version is first used."""

    def __init__(
        self,
        rows: Iterable[ApiRow],
        authorizer: Authorizer,
        now_s: Callable[[], float] = _CLOCK.monotonic_s,
    ) -> None:
        """`now_s` measures the duration of requests in their log lines."""
        self.rows: Mapping[int, ApiRow] = {row.key: row for row in rows}
        self.stats: Mapping[int, ApiStats] = {row.key: ApiStats(row.api) for row in self.rows.values()}
        """The statistics of each API, by key."""
        self._authorizer = authorizer
        self._now_s = now_s
        self.routes: dict[tuple[int, int], ApiRoute] = {}
        """The routes of the versions that were used, by key and version."""

    def bytes_max(self, key: int) -> int:
        """Return the maximum size of a request with this key. Unknown keys get the default, to be refused later."""
        row = self.rows.get(key)
        return row.bytes_max if row is not None else SMALL_BYTES_MAX

    def route(self, key: int, *, version: int) -> ApiRoute | None:
        """Return the route of an API version, or None if it is not served."""
        route = self.routes.get((key, version))
        if route is None:
            row = self.rows.get(key)
            if row is None or not row.first <= version <= row.last:
                return None
            handle = self._handler(row)
            route = self.routes[key, version] = ApiRoute(
                row.api,
                logged(row.api, handle, self._now_s) if logs_requests() else handle,
                row.bytes_max,
                is_flexible(row.api, version),
                has_flexible_response_header(row.api, version),
                row.role,
                row.waits_for,
                row.targets,
                self.stats[key].durations.observe,
            )
        return route

    def _handler(self, row: ApiRow) -> Handler:
        """Return the handler of a row, preceded by the check of its right."""
        if self._authorizer is ALLOW_ALL or row.right is Right.NOTHING:
            return row.handle
        return partial(_authorized, row, self._authorizer)


def _authorized(row: ApiRow, authorizer: Authorizer, request: BrokerRequest) -> Result:
    """Check the right of an API, then let its handler check the rights on the resources that the request names."""
    access = Access(authorizer, request.principal, row.right)
    if row.by_resource or access.allows_any():
        return row.handle(request.limited_to(access))
    error = access.refusal()
    return refused(row.api, request, MillstreamError(row.refused_with or error.code, error.detail))
