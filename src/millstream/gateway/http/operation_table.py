"""The table that the web API is made from: its rows make the routes, the checks of rights and the documentation."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.rights import Right
from millstream.model.errors import ErrorCode


class Example(NamedTuple):
    """A request that a reader can send as it stands, and that the tests do send.

    `path` has the parameters in it. Examples run in the order of the table: what one needs was made by another.
    """

    name: str
    path: str
    body: Any = None
    """JSON, or bytes as they are."""
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}
    status: int | None = None
    """The status it ends with, if that is not the operation's own."""


@dataclass(frozen=True, slots=True)
class WebOperation:
    """One thing that can be done over HTTP.

    `parameters` are those of path and query, which a GET may also have in a JSON body; `body` is what the body is
    decoded as: a struct, or what a function makes of its bytes. The handler gets both, and gives what is encoded as the
    answer. `concerns` names the field, of either, that says which topic or group the right is needed for.
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
    """What is answered instead where the request is of another shape."""
    status: int = 200
    concerns: str = ""
    errors: Sequence[ErrorCode] = ()
    examples: Sequence[Example] = ()
    group: str = ""
    """The heading under which the documentation has it."""
    media: Sequence[str] = ()
    """Other forms of the answer than JSON."""
    bodies: Sequence[str] = ()
    """Other forms of the body than JSON."""
    details: str = ""
    bounds: Mapping[str, ErrorCode] = field(default_factory=dict)
    """What it is, by field, that a value is beyond its bounds, where the brokers have a name for it."""
