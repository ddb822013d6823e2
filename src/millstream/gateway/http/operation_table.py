"""Defines the rows of the operation table, from which routes, right checks and documentation are made."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from millstream.gateway.http.web_request import WebRequest
from millstream.model.errors import ErrorCode
from millstream.model.rights import Right


class Example(NamedTuple):
    """A request that readers can send unchanged; the tests send it too.

    `path` includes the parameters. Examples run in the order of the table, and may use what earlier examples created.
    """

    name: str
    path: str
    body: Any = None
    """An object to send as JSON, or bytes to send unchanged."""
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}
    status: int | None = None
    """The expected status, if it differs from the operation's."""


@dataclass(frozen=True, slots=True)
class WebOperation:
    """One operation of the web API.

    `parameters` is the struct of path and query; a GET may also send them as a JSON body. `body` is the struct of the
    body, and `read_body` replaces the JSON decoder for other bodies. The handler's result is encoded as the answer.
    `concerns` is the field of parameters or body that names the topic or group on which the right is needed.
    """

    method: str
    path: str
    name: str
    summary: str
    right: Right
    handler: "Callable[[WebRequest], Awaitable[Any]]"
    parameters: type[msgspec.Struct]
    body: type[msgspec.Struct] | None = None
    read_body: Callable[[WebRequest, bytes], Any] | None = None
    answer: type[msgspec.Struct] | None = None
    other_answer: type[msgspec.Struct] | None = None
    """A second form of the answer, which depends on the form of the request."""
    status: int = 200
    concerns: str = ""
    cluster_field: str = "cluster"
    """The field, of either, that names the cluster. An operation without this field concerns every cluster."""
    errors: Sequence[ErrorCode] = ()
    examples: Sequence[Example] = ()
    group: str = ""
    """Heading of the operation in the documentation."""
    media: Sequence[str] = ()
    """Media types of the answer besides JSON."""
    bodies: Sequence[str] = ()
    """Media types of the body besides JSON."""
    details: str = ""
    bounds: Mapping[str, ErrorCode] = field(default_factory=dict)
    """The error code of a value out of bounds, by field, for fields whose brokers' error code is more specific."""
