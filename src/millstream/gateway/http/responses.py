"""Answers on their way out: JSON, problems, streams; compressed where the caller takes that and it pays."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from millstream.gateway.failures import FieldError, field_of, status_of
from millstream.model.errors import ErrorCode, MillstreamError

JSON = b"application/json"
PROBLEM = b"application/problem+json"
NDJSON = b"application/x-ndjson"
SSE = b"text/event-stream"

COMPRESS_BYTES_MIN = 1024
COMPRESS_HERE_BYTES_MAX = 64 * 1024
"""What is larger is compressed in a thread."""

_encoder = msgspec.json.Encoder()
encode = _encoder.encode


class ProblemDetails(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What went wrong, as RFC 9457 has it; `code` and `number` are the same on every interface."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    number: int
    retriable: bool
    """Whether the same request may succeed later."""
    field: str | UnsetType = UNSET
    """Which part of the request it lies in."""
    message_id: str | UnsetType = UNSET
    """The id of an event that was not, or perhaps not, stored: sent again with it, it is stored once."""
    events: Sequence[Any] | UnsetType = UNSET
    """What became of each event, where some were not stored."""


class WebResponse:
    """A whole answer."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self, body: bytes, content_type: bytes = JSON, status: int = 200, headers: Mapping[bytes, bytes] | None = None
    ) -> None:
        self.status = status
        self.content_type = content_type
        self.body = body
        self.headers = headers


class StreamedResponse:
    """An answer that comes bit by bit."""

    def __init__(self, parts: AsyncIterator[bytes], content_type: bytes) -> None:
        self.parts = parts
        self.content_type = content_type


def problem_of(error: MillstreamError, status: int | None = None, **more: Any) -> ProblemDetails:
    code = error.code
    field = field_of(error)
    return ProblemDetails(
        type=f"/docs/errors#{code.name}",
        title=code.meaning,
        status=status_of(error).http if status is None else status,
        detail=error.detail,
        code=code.name,
        number=code.number,
        retriable=code.retriable,
        field=UNSET if field is None else field,
        **more,
    )


def problem_answer(problem: ProblemDetails, headers: Mapping[bytes, bytes] | None = None) -> WebResponse:
    more = _BESIDE.get(problem.status, {})
    return WebResponse(encode(problem), PROBLEM, problem.status, {**more, **(headers or {})})


_LATER = {b"retry-after": b"1"}
_BESIDE = {503: _LATER, 504: _LATER, 413: {b"connection": b"close"}}
"""A body that is too large is not read to its end, so that nothing can follow it."""

_AT = re.compile(r" - at `\$(?P<path>.*)`$")
_BOUNDS = re.compile(r"^Expected `\w+` (?:[<>]=? |of length |matching )")
_NAMED = re.compile(r"(?:missing required|contains unknown) field `(?P<name>[^`]*)`")


def field_error(error: msgspec.ValidationError) -> FieldError:
    """What a body or a parameter should have been, naming it."""
    text = str(error)
    at = _AT.search(text)
    path = at["path"].lstrip(".") if at else ""
    detail = text[: at.start()] if at else text
    named = _NAMED.search(detail)
    if named is not None:
        path = f"{path}.{named['name']}".lstrip(".")
    path = path.replace("[...]", "")
    where = path or "body"
    return FieldError(ErrorCode.INVALID_REQUEST, f"{where}: {detail[:1].lower()}{detail[1:]}", where)


def within(path: str, error: msgspec.ValidationError) -> msgspec.ValidationError:
    """What is wrong, where all that was decoded stands at this path for the caller."""
    text = str(error)
    at = _AT.search(text)
    return msgspec.ValidationError(f"{text[: at.start()]} - at `$.{path}{at['path']}`") if at else error


def out_of_bounds(error: msgspec.ValidationError) -> bool:
    """Whether a value is of the right type, and beyond what it may be."""
    return _BOUNDS.search(str(error)) is not None


async def compressed(body: bytes) -> bytes:
    """As gzip has it, quickly rather than small."""
    if len(body) > COMPRESS_HERE_BYTES_MAX:
        return await asyncio.to_thread(_gzip, body)
    return _gzip(body)


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()
