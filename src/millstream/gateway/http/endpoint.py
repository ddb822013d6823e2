"""Handles the requests of one path: checks them, runs the operation and sends the response.

The steps are: method, origin, right, parameters, body, handler, response. The right is checked before the body is read
if path and query name the resource; otherwise it is checked after the body is decoded. Every failure becomes a problem
response. An unexpected exception is logged, and the client gets no details of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from millstream.gateway.failures import FieldError, TitledError, invalid
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
from millstream.gateway.operations.clusters import DEFAULT
from millstream.gateway.traffic import NO_ROUTE, Traffic, now_s, peer_of
from millstream.model.authorization import ALLOW_ALL, Access, Principal
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import READING, Right

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CONNECTION = "millstream.connection"
"""Key of the scope under which the protocol puts its connection, so that a lost connection cancels the handler's task.
"""

FOREIGN_SITES = (b"cross-site", b"same-site")
"""Values of Sec-Fetch-Site for requests from pages of other sites. An image or a frame in a page sends no Origin."""

_BOUNDS = {
    "topic": ErrorCode.INVALID_TOPIC,
    "group": ErrorCode.INVALID_GROUP_ID,
    "message_id": ErrorCode.INVALID_MESSAGE_ID,
}
"""Error codes for names that are too short or too long, by field."""

_NAMED_ALONE = {"topics": "topic"}
"""The parameter that names a single resource of a body that may name several."""

_any_object = msgspec.json.Decoder(dict[str, Any])


class Endpoint:
    """Handles all methods of one path."""

    def __init__(self, site: WebContext, operations: Iterable[WebOperation]) -> None:
        self._site = site
        self._operations = {operation.method: operation for operation in operations}
        self._route = next((operation.path for operation in self._operations.values()), NO_ROUTE)
        if "GET" in self._operations:
            self._operations["HEAD"] = self._operations["GET"]
        self._decoders = {
            name: msgspec.json.Decoder(operation.body)
            for name, operation in self._operations.items()
            if operation.body is not None and operation.read_body is None
        }
        self._allow = ", ".join([*self._operations, "OPTIONS"]).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun_s = now_s()
        method: str = scope["method"]
        operation = self._operations.get(method)
        if operation is None:
            refusal = self._other_method(method)
            self._count(Right.NOTHING, refusal, scope, begun_s)
            await send_answer(refusal, dict(scope["headers"]), send)
            return
        client = scope.get("client")
        principal = Principal(client[0] if client else "")
        request = WebRequest(self._site, principal, scope["headers"], is_head=method == "HEAD")
        body = Body(request.share, self._site.limits.body_bytes)
        connection = scope.get(CONNECTION)
        if connection is not None and operation.method == "GET":
            connection.task = asyncio.current_task()
        try:
            answer = await self._answer(operation, request, scope, receive, body)
            self._site.traffic.received_bytes += body.size_bytes
            self._count(operation.right, answer, scope, begun_s)
            if isinstance(answer, StreamedResponse):
                await self._send_stream(answer, send, connection)
            else:
                await send_answer(answer, request.headers, send, with_body=not request.is_head)
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
            request.share.give_back()

    def _count(self, right: Right, answer: WebResponse | StreamedResponse, scope: Scope, begun_s: float) -> None:
        status = "200" if isinstance(answer, StreamedResponse) else str(answer.status)
        traffic, peer = self._site.traffic, peer_of(scope.get("client"))
        traffic.answered(right, self._route, status, begun_s=begun_s, method=scope["method"], peer=peer)
        if not isinstance(answer, StreamedResponse):
            traffic.sent_bytes += len(answer.body)

    async def _send_stream(self, stream: StreamedResponse, send: Send, connection: Any) -> None:
        """Send each part after the client has received most of the previous one."""
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
        text = f"{method} is not allowed on this path; allowed: {self._allow.decode()}"
        problem = problem_of(MillstreamError(ErrorCode.INVALID_REQUEST, text), 405, title="the method is not allowed")
        return problem_answer(problem, headers)

    async def _answer(
        self, operation: WebOperation, request: WebRequest, scope: Scope, receive: Receive, body: Body
    ) -> WebResponse | StreamedResponse:
        try:
            self._check_origin(operation, request.headers)
            given = {**read_query(scope["query_string"]), **read_path(scope.get("path_params", {}))}
            is_limited = self._site.authorizer is not ALLOW_ALL
            if is_limited:
                self._check_before_body(operation, request, given)
            await self._read(operation, request, given, receive, body)
            if is_limited:
                self._check_right(operation, request)
            return self._made(operation, request, await operation.handler(request))
        except MillstreamError as error:
            return problem_answer(problem_of(error, 400 if isinstance(error, MalformedBodyError) else None))
        except msgspec.ValidationError as error:
            kind = operation.parameters if request.parameters is None else operation.body
            return problem_answer(problem_of(_field_error(operation, error, kind)))
        except GoneError:
            raise
        except Exception:
            log.exception("request failed", extra={"method": operation.method, "route": operation.path})
            unexpected = MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR, "unexpected error; see the gateway's log")
            return problem_answer(problem_of(unexpected, title="the gateway failed unexpectedly"))

    def _made(self, operation: WebOperation, request: WebRequest, found: Any) -> WebResponse | StreamedResponse:
        """Encode the response and count it as held memory.

        Raises GATEWAY_FULL if the response exceeds the budget and the request can be repeated.
        """
        if isinstance(found, StreamedResponse):
            return found
        answer = (
            found
            if isinstance(found, WebResponse)
            else WebResponse(b"" if found is None else encode(found), status=operation.status)
        )
        is_repeatable = operation.right in READING and not getattr(request.parameters, "auto_commit", False)
        request.share.take(len(answer.body), is_refusable=is_repeatable)
        return answer

    # The request.

    async def _read(
        self, operation: WebOperation, request: WebRequest, given: Mapping[str, Any], receive: Receive, body: Body
    ) -> None:
        headers = request.headers
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        data = b""
        if has_body and headers.get(b"content-length") != b"0":
            declared = headers.get(b"content-length", b"")
            data = await body.receive(receive, declared, headers.get(b"content-encoding", b""))
        takes_body = operation.body is not None or operation.read_body is not None
        if data and not takes_body:
            given = {**read_json(data, _any_object), **given}
        request.parameters = msgspec.convert(given, operation.parameters, strict=False)
        if operation.read_body is not None:
            request.body = operation.read_body(request, data)
        elif operation.body is not None:
            if not data:
                raise MalformedBodyError("the body is empty; send JSON")
            request.body = read_json(data, self._decoders[operation.method])

    def _check_origin(self, operation: WebOperation, headers: Mapping[bytes, bytes]) -> None:
        """Refuse requests that a browser sends for a page of another site, unless `cors_origins` allows that site.

        Otherwise any page could use what its reader's machine can reach. Other sites may link to the documentation.
        """
        origin = headers.get(b"origin")
        if origin is None and (operation.right is Right.NOTHING or headers.get(b"sec-fetch-site") not in FOREIGN_SITES):
            return
        origins = self._site.limits.origins
        text = "other web sites" if origin is None else origin.decode("latin-1")
        own = text.partition("://")[2]
        if text in origins or "*" in origins or (own and own == headers.get(b"host", b"").decode("latin-1")):
            return
        detail = f"pages of {text} may not use this gateway; add their origin to the setting cors_origins to allow them"
        header = "Origin" if origin else "Sec-Fetch-Site"
        title = "the page's origin is not allowed"
        raise TitledError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail, header, title=title)

    def _check_before_body(self, operation: WebOperation, request: WebRequest, given: Mapping[str, str]) -> None:
        """Check the right on the resources in path and query. If they name none, require the right on any resource."""
        cluster = given.get(operation.cluster_field, "")
        access = Access(self._site.authorizer, request.principal, operation.right, cluster)
        access.check_any()
        named = given.get(_NAMED_ALONE.get(operation.concerns, operation.concerns))
        access.check_all([named] if named else (), given.get("group"))

    def _check_right(self, operation: WebOperation, request: WebRequest) -> None:
        cluster = _cluster_of(operation, request)
        concerned: str | Sequence[str] = ""
        if operation.concerns:
            of_body: str | Sequence[str] | None = getattr(request.body, operation.concerns, None)
            concerned = getattr(request.parameters, operation.concerns) if of_body is None else of_body
        resources = (concerned,) if isinstance(concerned, str) else concerned
        group = getattr(request.parameters, "group", None)
        Access(self._site.authorizer, request.principal, operation.right, cluster).check_all(resources, group)


def _cluster_of(operation: WebOperation, request: WebRequest) -> str:
    """Return the cluster that the operation concerns, or "" for an operation that concerns every cluster."""
    names = [getattr(part, operation.cluster_field, "") for part in (request.body, request.parameters)]
    fields = {*operation.parameters.__struct_fields__, *getattr(request.body, "__struct_fields__", ())}
    return next(filter(None, names), DEFAULT if operation.cluster_field in fields else "")


def _field_error(operation: WebOperation, error: msgspec.ValidationError, kind: object) -> FieldError:
    """Convert an error of decoding `kind` to a FieldError, with the specific error code of the field if it has one."""
    found = field_error(error, kind)
    if kind is operation.parameters and operation.body is not None:
        accepted = operation.body.__struct_encode_fields__
        if found.field in accepted and found.field not in operation.parameters.__struct_encode_fields__:
            return invalid(found.field, "not a query parameter; send it in the body", "unknown parameter")
    code = operation.bounds.get(found.field) or _BOUNDS.get(found.field.rpartition(".")[2])
    return FieldError(code, found.detail, found.field) if code is not None and out_of_bounds(error) else found


# The answer.


async def send_answer(
    answer: WebResponse, headers: Mapping[bytes, bytes], send: Send, *, with_body: bool = True
) -> None:
    """Send a whole response, compressed if the client accepts gzip.

    A response to HEAD whose body was not built has no length.
    """
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


async def no_such_path(traffic: Traffic, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer RESOURCE_NOT_FOUND. The router calls this for unknown paths."""
    if scope["type"] != "http":
        return
    path = scope["path"]
    error = MillstreamError(
        ErrorCode.RESOURCE_NOT_FOUND, f"path {path[:200]!r} does not exist; see /docs for the paths of this API"
    )
    answer = problem_answer(problem_of(error))
    traffic.refused(answer.status, scope["method"], scope.get("client"))
    await send_answer(answer, dict(scope["headers"]), send)
