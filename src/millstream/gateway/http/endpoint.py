"""One path of the web API as an ASGI application: the one place where requests are checked, run and answered.

In this order: the method, the origin, the parameters, the body, the right, the handler, the answer. Whatever goes wrong
becomes a problem; what is unexpected is logged, and told as nothing more than that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from millstream.gateway.failures import FieldError
from millstream.gateway.http.operation_table import WebOperation
from millstream.gateway.http.request_body import Body, GoneError, Receive
from millstream.gateway.http.responses import (
    COMPRESS_BYTES_MIN,
    StreamedResponse,
    WebResponse,
    compressed,
    encode,
    field_error,
    out_of_bounds,
    problem_answer,
    problem_of,
)
from millstream.gateway.http.web_context import WebContext
from millstream.gateway.http.web_request import MalformedBodyError, WebRequest, read_json, read_path, read_query
from millstream.gateway.rights import READING, Caller, Right, check_all
from millstream.model.errors import ErrorCode, MillstreamError

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CONNECTION = "millstream.connection"
"""Where a scope has the connection of its request, if that wants to know who is to be woken when it is lost."""

ELSEWHERE = (b"cross-site", b"same-site")
"""What browsers say in Sec-Fetch-Site of requests for pages that are not the gateway's own; an image, or a frame, that
a page shows has no Origin."""

_BOUNDS = {
    "topic": ErrorCode.INVALID_TOPIC,
    "group": ErrorCode.INVALID_GROUP_ID,
    "message_id": ErrorCode.INVALID_MESSAGE_ID,
}
"""What a name is that is too short or too long, wherever it stands."""

_any_object = msgspec.json.Decoder(dict[str, Any])


class Endpoint:
    """What can be done with one path, by method."""

    def __init__(self, site: WebContext, operations: Iterable[WebOperation]) -> None:
        self._site = site
        self._operations = {operation.method: operation for operation in operations}
        if "GET" in self._operations:
            self._operations["HEAD"] = self._operations["GET"]
        self._decoders = {
            name: msgspec.json.Decoder(operation.body)
            for name, operation in self._operations.items()
            if operation.body is not None and operation.read_body is None
        }
        self._allow = ", ".join([*self._operations, "OPTIONS"]).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        operation = self._operations.get(method)
        if operation is None:
            await send_answer(self._other_method(method), dict(scope["headers"]), send)
            return
        client = scope.get("client")
        asked = WebRequest(self._site, Caller(client[0] if client else ""), scope["headers"], is_head=method == "HEAD")
        body = Body(asked.share, self._site.limits.body_bytes)
        connection = scope.get(CONNECTION)
        if connection is not None and operation.method == "GET":
            connection.task = asyncio.current_task()
        try:
            answer = await self._answer(operation, asked, scope, receive, body)
            self._count(operation, answer, body)
            if isinstance(answer, StreamedResponse):
                await self._send_stream(answer, send, connection)
            else:
                await send_answer(answer, asked.headers, send, with_body=not asked.is_head)
                if connection is not None:
                    await connection.taken()
        except GoneError:
            pass
        except asyncio.CancelledError:
            if connection is None or not connection.is_lost:
                raise
        finally:
            if connection is not None and connection.task is asyncio.current_task():
                connection.task = None
            asked.share.give_back()

    def _count(self, operation: WebOperation, answer: WebResponse | StreamedResponse, body: Body) -> None:
        traffic = self._site.traffic
        traffic.received_bytes += body.size_bytes
        if isinstance(answer, StreamedResponse):
            traffic.answered(operation.right, "200")
        else:
            traffic.answered(operation.right, str(answer.status))
            traffic.sent_bytes += len(answer.body)

    async def _send_stream(self, stream: StreamedResponse, send: Send, connection: Any) -> None:
        """Bit by bit, each when the one before is taken."""
        fields = [
            (b"content-type", stream.content_type),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        async for part in stream.parts:
            self._site.traffic.sent_bytes += len(part)
            await send({"type": "http.response.body", "body": part, "more_body": True})
            if connection is not None:
                await connection.taken()
        await send({"type": "http.response.body", "body": b""})

    def _other_method(self, method: str) -> WebResponse:
        headers = {b"allow": self._allow}
        if method == "OPTIONS":
            return WebResponse(b"", status=204, headers=headers)
        error = MillstreamError(ErrorCode.INVALID_REQUEST, f"{method} is not for this path; {self._allow.decode()} are")
        return problem_answer(problem_of(error, 405), headers)

    async def _answer(
        self, operation: WebOperation, asked: WebRequest, scope: Scope, receive: Receive, body: Body
    ) -> WebResponse | StreamedResponse:
        try:
            self._check_origin(operation, asked.headers)
            await self._read(operation, asked, scope, receive, body)
            self._check_right(operation, asked)
            return self._made(operation, asked, await operation.handler(asked))
        except MillstreamError as error:
            return problem_answer(problem_of(error, 400 if isinstance(error, MalformedBodyError) else None))
        except msgspec.ValidationError as error:
            return problem_answer(problem_of(_named(operation, error)))
        except GoneError:
            raise
        except Exception:
            log.exception("%s %s failed", operation.method, operation.path)
            text = "the gateway met something unexpected; its log says what"
            return problem_answer(problem_of(MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR, text)))

    def _made(self, operation: WebOperation, asked: WebRequest, found: Any) -> WebResponse | StreamedResponse:
        """The answer, which counts as held. GATEWAY_FULL where that is too much, and it can be asked for again."""
        if isinstance(found, StreamedResponse):
            return found
        answer = (
            found
            if isinstance(found, WebResponse)
            else WebResponse(b"" if found is None else encode(found), status=operation.status)
        )
        is_repeatable = operation.right in READING and not getattr(asked.parameters, "auto_commit", False)
        asked.share.take(len(answer.body), is_refusable=is_repeatable)
        return answer

    # What is asked.

    async def _read(
        self, operation: WebOperation, asked: WebRequest, scope: Scope, receive: Receive, body: Body
    ) -> None:
        given: dict[str, Any] = read_query(scope["query_string"])
        headers = asked.headers
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        data = b""
        if has_body and headers.get(b"content-length") != b"0":
            declared = headers.get(b"content-length", b"")
            data = await body.receive(receive, declared, headers.get(b"content-encoding", b""))
        takes_body = operation.body is not None or operation.read_body is not None
        if data and not takes_body:
            given = {**read_json(data, _any_object), **given}
        given.update(read_path(scope.get("path_params", {})))
        asked.parameters = msgspec.convert(given, operation.parameters, strict=False)
        if operation.read_body is not None:
            asked.body = operation.read_body(asked, data)
        elif operation.body is not None:
            if not data:
                raise MalformedBodyError("the body is empty; JSON is expected")
            asked.body = read_json(data, self._decoders[operation.method])

    def _check_origin(self, operation: WebOperation, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what a browser sends for the page of another web site, unless that is allowed: pages may not use what
        the machine of whoever reads them can reach. Documentation may be linked to."""
        origin = headers.get(b"origin")
        if origin is None and (operation.right is Right.NOTHING or headers.get(b"sec-fetch-site") not in ELSEWHERE):
            return
        origins = self._site.limits.origins
        text = "other web sites" if origin is None else origin.decode("latin-1")
        own = text.partition("://")[2]
        if text in origins or "*" in origins or (own and own == headers.get(b"host", b"").decode("latin-1")):
            return
        detail = f"pages of {text} may not use this gateway; the setting cors_origins names those that may"
        raise FieldError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail, "Origin" if origin else "Sec-Fetch-Site")

    def _check_right(self, operation: WebOperation, asked: WebRequest) -> None:
        cluster = getattr(asked.body, "cluster", None) or getattr(asked.parameters, "cluster", None) or ""
        concerned: str | Sequence[str] = ""
        if operation.concerns:
            of_body: str | Sequence[str] | None = getattr(asked.body, operation.concerns, None)
            concerned = getattr(asked.parameters, operation.concerns) if of_body is None else of_body
        resources = (concerned,) if isinstance(concerned, str) else concerned
        group = getattr(asked.parameters, "group", None)
        check_all(self._site.guard, asked.caller, operation.right, cluster, resources, group)


def _named(operation: WebOperation, error: msgspec.ValidationError) -> FieldError:
    """What is wrong with a field, by the name that the same failure has elsewhere."""
    found = field_error(error)
    code = operation.bounds.get(found.field) or _BOUNDS.get(found.field.rpartition(".")[2])
    return FieldError(code, found.detail, found.field) if code is not None and out_of_bounds(error) else found


# What is answered.


async def send_answer(
    answer: WebResponse, headers: Mapping[bytes, bytes], send: Send, *, with_body: bool = True
) -> None:
    """How long a body is that was not made, for who wants none, is not said."""
    body = answer.body
    fields = [(b"content-type", answer.content_type)] if body or not with_body else []
    if len(body) >= COMPRESS_BYTES_MIN and b"gzip" in headers.get(b"accept-encoding", b""):
        body = await compressed(body)
        fields += [(b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")]
    if body or with_body:
        fields.append((b"content-length", b"%d" % len(body)))
    if answer.headers:
        fields += answer.headers.items()
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    await send({"type": "http.response.body", "body": body if with_body else b""})


async def no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    """What the router calls for paths that it does not know."""
    if scope["type"] != "http":
        return
    path = scope["path"]
    error = MillstreamError(
        ErrorCode.RESOURCE_NOT_FOUND, f"there is nothing at {path[:200]!r}; /docs shows what there is"
    )
    await send_answer(problem_answer(problem_of(error)), dict(scope["headers"]), send)
