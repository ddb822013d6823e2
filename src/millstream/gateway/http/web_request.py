"""A request as handlers see it: decoded and checked, with what they need to answer it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import msgspec

from millstream.gateway.budget import Share
from millstream.gateway.failures import FieldError, invalid
from millstream.gateway.rights import Caller
from millstream.model.errors import ErrorCode

if TYPE_CHECKING:
    from millstream.gateway.http.web_context import WebContext

PARAMETERS_MAX = 100


class WebRequest:
    """`parameters` and `body` are what the operation's row says they are."""

    __slots__ = ("body", "caller", "head", "headers", "is_head", "parameters", "share", "site")

    def __init__(
        self, site: "WebContext", caller: Caller, head: Sequence[tuple[bytes, bytes]], *, is_head: bool
    ) -> None:
        self.site = site
        self.is_head = is_head
        """Whether only the head of the answer is wanted: what it would bring must not be handed out to nobody."""
        self.share = Share(site.budget)
        """What the request holds."""
        self.caller = caller
        self.head = head
        self.headers: Mapping[bytes, bytes] = dict(head)
        """By their names in lower case; of those that came twice, the last."""
        self.parameters: Any = None
        self.body: Any = None

    def header(self, name: bytes) -> str:
        """A header's text, empty without one; INVALID_REQUEST, naming it, when it is no UTF-8."""
        try:
            return self.headers.get(name, b"").decode()
        except UnicodeDecodeError:
            shown = name.decode("latin-1")
            raise FieldError(ErrorCode.INVALID_REQUEST, f"the header {shown} is not UTF-8", shown) from None


def read_query(query: bytes) -> dict[str, str]:
    """The parameters of a query; INVALID_REQUEST, naming it, for one that is given twice or is no UTF-8."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(query.decode("ascii"), True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except ValueError as error:
        raise FieldError(ErrorCode.INVALID_REQUEST, f"the query cannot be read: {error}", "query") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise invalid(next(name for name in found if names.count(name) > 1), "it is given more than once")
    return found


def read_path(parts: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a path as it was sent; INVALID_REQUEST where one is no UTF-8."""
    try:
        return {name: unquote(text, errors="strict") for name, text in parts.items()}
    except UnicodeDecodeError:
        raise FieldError(ErrorCode.INVALID_REQUEST, "a name in the path is not UTF-8", "path") from None


def read_json(data: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    """Decode a JSON body; MalformedBodyError when it is no JSON, msgspec.ValidationError when it has other fields."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the body is no JSON: {error}") from None
    except RecursionError:
        raise MalformedBodyError("the body is nested too deeply") from None


class MalformedBodyError(FieldError):
    """A body that cannot be read at all."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, detail, "body")
