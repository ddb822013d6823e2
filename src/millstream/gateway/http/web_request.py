"""Defines the request that handlers get, and decodes query, path and JSON bodies."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import msgspec

from millstream.gateway.budget import Share
from millstream.gateway.failures import TitledError, invalid
from millstream.model.authorization import Principal
from millstream.model.errors import ErrorCode

if TYPE_CHECKING:
    from millstream.gateway.http.web_context import WebContext

PARAMETERS_MAX = 100
REPEATED = "a query parameter is repeated"


class WebRequest:
    """A decoded request. `parameters` and `body` have the types of the operation's row."""

    __slots__ = ("body", "head", "headers", "is_head", "parameters", "principal", "share", "site")

    def __init__(
        self, site: "WebContext", principal: Principal, head: Sequence[tuple[bytes, bytes]], *, is_head: bool
    ) -> None:
        self.site = site
        self.is_head = is_head
        """True for HEAD. The handler must then deliver no messages, because the client would not get them."""
        self.share = Share(site.budget)
        """The memory that the request holds."""
        self.principal = principal
        self.head = head
        self.headers: Mapping[bytes, bytes] = dict(head)
        """Headers by lower-case name. Of a repeated header the last value counts."""
        self.parameters: Any = None
        self.body: Any = None

    def header(self, name: bytes) -> str:
        """Return a header's text, empty if it is missing.

        Raises INVALID_REQUEST, naming the header, if it is not UTF-8.
        """
        try:
            return self.headers.get(name, b"").decode()
        except UnicodeDecodeError:
            shown = name.decode("latin-1")
            raise invalid(shown, "the header is not UTF-8", "a header is malformed") from None


def read_query(query: bytes) -> dict[str, str]:
    """Parse a query string. Raises INVALID_REQUEST, naming the parameter, if one is repeated or not UTF-8."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(query.decode("ascii"), True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except ValueError as error:
        raise invalid("query", f"malformed: {error}", "the query string is malformed") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise invalid(
            next(name for name in found if names.count(name) > 1), "the parameter is repeated; send it once", REPEATED
        )
    return found


def read_path(parts: Mapping[str, str]) -> dict[str, str]:
    """Decode the parameters of a path. Raises INVALID_REQUEST if one is not UTF-8."""
    try:
        return {name: unquote(text, errors="strict") for name, text in parts.items()}
    except UnicodeDecodeError:
        raise invalid("path", "a name in the path is not UTF-8", "the path is malformed") from None


def read_json(data: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    """Decode a JSON body. MalformedBodyError for invalid JSON, msgspec.ValidationError for wrong fields."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise MalformedBodyError("the body is nested too deeply") from None


class MalformedBodyError(TitledError):
    """A body that cannot be decoded at all."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, detail, "body", title="the request body is malformed")
