"""Builds responses: JSON, problem documents and streams, with gzip compression."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from millstream.gateway.failures import FieldError, TitledError, detail_of, field_of, invalid, status_of
from millstream.gateway.http.field_names import hint
from millstream.model.errors import ErrorCode, MillstreamError, UnreadableError

JSON = b"application/json"
PROBLEM = b"application/problem+json"
NDJSON = b"application/x-ndjson"
SSE = b"text/event-stream"

COMPRESS_BYTES_MIN = 1024
COMPRESS_HERE_BYTES_MAX = 64 * 1024
"""Larger bodies are compressed in a thread."""

_encoder = msgspec.json.Encoder()
encode = _encoder.encode


class ProblemDetails(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An error as RFC 9457 defines it; `code` and `number` are the same on every interface."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    number: int
    retriable: bool
    """True if the same request may succeed later."""
    field: str | UnsetType = UNSET
    """The part of the request that caused the error."""
    topic: str | UnsetType = UNSET
    """The topic of messages that cannot be returned (`UNDECODABLE_BATCH`, `RESPONSE_TOO_LARGE`)."""
    partition: int | UnsetType = UNSET
    """The partition of these messages."""
    offset: int | UnsetType = UNSET
    """The first offset that cannot be returned."""
    next_offset: int | UnsetType = UNSET
    """The offset after these messages, at which a reader can continue."""
    message_id: str | UnsetType = UNSET
    """The id of an event that was not stored, or whose outcome is unknown. A retry with this id stores it once."""
    events: Sequence[Any] | UnsetType = UNSET
    """The outcome of each event, if some were not stored."""


class WebResponse:
    """A complete response."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self, body: bytes, content_type: bytes = JSON, status: int = 200, headers: Mapping[bytes, bytes] | None = None
    ) -> None:
        self.status = status
        self.content_type = content_type
        self.body = body
        self.headers = headers


class StreamedResponse:
    """A response that is sent in parts."""

    def __init__(self, parts: AsyncIterator[bytes], content_type: bytes) -> None:
        self.parts = parts
        self.content_type = content_type


def problem_of(
    error: MillstreamError, status: int | None = None, *, title: str | None = None, **more: Any
) -> ProblemDetails:
    """Convert an error to a problem document. `title` replaces the table's text if that does not fit this problem."""
    code = error.code
    field = field_of(error)
    if isinstance(error, UnreadableError) and error.offset >= 0:
        more |= {name: getattr(error, name) for name in ("topic", "partition", "offset", "next_offset")}
    return ProblemDetails(
        type=f"/docs/errors#{code.name}",
        title=title or _title(error),
        status=status_of(error).http if status is None else status,
        detail=detail_of(error),
        code=code.name,
        number=code.number,
        retriable=code.retriable,
        field=UNSET if field is None else field,
        **more,
    )


def _title(error: MillstreamError) -> str:
    if isinstance(error, TitledError):
        return error.title
    if error.code is ErrorCode.INVALID_REQUEST and isinstance(error, FieldError):
        return "the value of a field is not valid"
    return error.code.meaning


def problem_answer(problem: ProblemDetails, headers: Mapping[bytes, bytes] | None = None) -> WebResponse:
    more = _STATUS_HEADERS.get(problem.status, {})
    return WebResponse(encode(problem), PROBLEM, problem.status, {**more, **(headers or {})})


_RETRY_AFTER = {b"retry-after": b"1"}
_STATUS_HEADERS = {503: _RETRY_AFTER, 504: _RETRY_AFTER, 413: {b"connection": b"close"}}
"""Additional headers by status. A body over the limit is not read to its end, so its connection is closed."""

_PATH_SUFFIX = re.compile(r" - at `\$(?P<path>.*)`$")
_OUT_OF_BOUNDS = re.compile(r"^Expected `\w+` (?:[<>]=? |of length |matching )")
_FIELD_NAME = re.compile(r"(?:missing required|contains (?P<unknown>unknown)) field `(?P<name>[^`]*)`")


def field_error(error: msgspec.ValidationError, kind: object) -> FieldError:
    """Convert an error of decoding `kind` to a FieldError that names the field and the accepted values or names."""
    text = str(error)
    at = _PATH_SUFFIX.search(text)
    path = at["path"] if at else ""
    detail = text[: at.start()] if at else text
    title = "a field is out of range" if out_of_bounds(error) else "a field has the wrong type"
    named = _FIELD_NAME.search(detail)
    if named is not None:
        title = "a required field is missing"
        if named["unknown"]:
            title, detail = "unknown field", f"unknown field; {hint(kind, path, named['name'])}"
        path = f"{path}.{named['name']}"
    where = path.lstrip(".").replace("[...]", "") or "body"
    return invalid(where, f"{detail[:1].lower()}{detail[1:]}", title)


def within(path: str, error: msgspec.ValidationError) -> msgspec.ValidationError:
    """Prefix the error's path, if the decoded data is only a part of the request."""
    text = str(error)
    at = _PATH_SUFFIX.search(text)
    return msgspec.ValidationError(f"{text[: at.start()]} - at `$.{path}{at['path']}`") if at else error


def out_of_bounds(error: msgspec.ValidationError) -> bool:
    """True if a value has the right type but is out of bounds."""
    return _OUT_OF_BOUNDS.search(str(error)) is not None


async def compressed(body: bytes) -> bytes:
    """Compress with gzip, at the fastest level."""
    if len(body) > COMPRESS_HERE_BYTES_MAX:
        return await asyncio.to_thread(_gzip, body)
    return _gzip(body)


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()
