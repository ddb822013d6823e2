"""The dispatch table: one row per API, from which dispatch, limits and ApiVersions are all derived."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from millstream.broker.dispatch.request import Handler
from millstream.model.roles import Role
from millstream.wire.framing import has_flexible_response_header
from millstream.wire.messages import is_flexible

SMALL_BYTES_MAX = 1024 * 1024
"""Largest request of an API that carries no records, unless its row says otherwise."""


class ApiRight(StrEnum):
    """What a caller will need to be allowed; nothing is checked yet."""

    NONE = "none"
    READ = "read the topic"
    WRITE = "write the topic"
    DESCRIBE = "see the topic"
    CREATE = "create topics"
    ADMIN = "administer the topic"


class ApiRow(NamedTuple):
    """One API. Versions `first` to `last` are served; `advertised_first` may be lower for clients that ask for it."""

    key: int
    api: str
    first: int
    last: int
    right: ApiRight
    handle: Handler
    bytes_max: int = SMALL_BYTES_MAX
    advertised_first: int | None = None
    refusal: bytes | None = None
    """What answers a version that is not served, as a body of version 0; without one the connection is cut off."""
    role: Role | None = None
    """Whose it is: connections that declared another role are refused (see `millstream.broker.dispatch.roles`)."""


class ApiRoute(NamedTuple):
    """A row's part that one version needs."""

    api: str
    handle: Handler
    bytes_max: int
    flexible: bool
    flexible_answer: bool
    role: Role | None


class DispatchTable:
    """The rows by key; routes are made as versions are first used."""

    def __init__(self, rows: Iterable[ApiRow]) -> None:
        self.rows: Mapping[int, ApiRow] = {row.key: row for row in rows}
        self._routes: dict[tuple[int, int], ApiRoute] = {}

    def bytes_max(self, key: int) -> int:
        """How large a request of this key may be; for a key that is not served, enough to be told so."""
        row = self.rows.get(key)
        return row.bytes_max if row is not None else SMALL_BYTES_MAX

    def route(self, key: int, version: int) -> ApiRoute | None:
        """None when this key or this version of it is not served."""
        route = self._routes.get((key, version))
        if route is None:
            row = self.rows.get(key)
            if row is None or not row.first <= version <= row.last:
                return None
            route = self._routes[key, version] = ApiRoute(
                row.api,
                row.handle,
                row.bytes_max,
                is_flexible(row.api, version),
                has_flexible_response_header(row.api, version),
                row.role,
            )
        return route
