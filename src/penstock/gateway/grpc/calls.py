"""What all methods have in common, in one place: the right that a call needs, its deadline, how its failures are told,
and what becomes of it when the gateway is drained.

A service is a class with a method for each of the contract's, in snake case, that says by `needs` what right it needs.
How it is called follows from the contract: `(request, call)` gives the response; where responses are a stream it is
`(request, call, write)`; where requests are one too, `(requests, call, write)`.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from penstock.gateway.clusters import DEFAULT, Cluster, Clusters
from penstock.gateway.draining import Draining
from penstock.gateway.failures import invalid
from penstock.gateway.grpc.statuses import DETAILS_KEY, rich_status
from penstock.gateway.rights import Caller, Guard, Right
from penstock.model.errors import ErrorCode, PenstockError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Context = grpc.aio.ServicerContext[Any, Any]
Write = Callable[[Any], Awaitable[None]]

log = logging.getLogger(__name__)

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Needs(NamedTuple):
    """A right, and which field of the request names what it is needed on: a topic, topics or a group."""

    right: Right
    field: str
    within: str

    def check(self, guard: Guard, caller: Caller, request: Any) -> None:
        """Raise what the guard does."""
        owner = getattr(request, self.within) if self.within else request
        cluster = getattr(owner, "cluster", "") or DEFAULT
        named = getattr(owner, self.field) if self.field else ""
        for resource in [named] if isinstance(named, str) else list(named) or [""]:
            guard.check(caller, self.right, cluster, resource)


def needs(right: Right, field: str = "", *, within: str = "") -> Callable[[F], F]:
    """Declare what a method needs: the right, the field that names the resource, and the message that field is in."""

    def declared(function: F) -> F:
        function.needs = Needs(right, field, within)  # type: ignore[attr-defined]
        return function

    return declared


class Grounds(NamedTuple):
    """What calls stand on."""

    clusters: Clusters
    guard: Guard
    draining: Draining


class Call:
    """One call, as its method sees it."""

    __slots__ = ("_context", "_grounds")

    def __init__(self, grounds: Grounds, context: Context) -> None:
        self._grounds = grounds
        self._context = context

    @property
    def clusters(self) -> Clusters:
        return self._grounds.clusters

    def cluster(self, name: str) -> Cluster:
        """The cluster that a request names; UNKNOWN_CLUSTER when this gateway does not serve it."""
        return self._grounds.clusters.get(name or DEFAULT)

    def timeout_s(self, cluster: Cluster) -> float:
        """How long an operation may take: as long as any may, but no longer than the caller waits."""
        left_s = self._context.time_remaining()
        return cluster.timeout_s if left_s is None else max(0.001, min(cluster.timeout_s, left_s))

    def wait_s(self, wanted_s: float) -> float:
        """How long to wait for a message: a little less than the caller does, who would hear nothing otherwise."""
        left_s = self._context.time_remaining()
        return wanted_s if left_s is None else max(0.0, min(wanted_s, left_s - min(0.2, left_s / 5)))

    @property
    def draining(self) -> Draining:
        return self._grounds.draining

    @property
    def is_draining(self) -> bool:
        return self._grounds.draining.is_draining

    async def waiting(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives, which may take long; None when the gateway is drained meanwhile."""
        return await self._grounds.draining.waiting(work)


def shutting_down() -> PenstockError:
    """What streams end with when the gateway is drained."""
    return PenstockError(ErrorCode.SHUTTING_DOWN, "the gateway is being stopped; call again, another will answer")


class _Malformed(NamedTuple):
    """A request that cannot be read, until there is somebody to tell."""

    why: str


def _reader(kind: type[Message]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Message | _Malformed:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            return _Malformed(str(error))

    return read


class Answering:
    """Wraps the methods of services: nothing is called without its right, and nothing fails but by name."""

    def __init__(self, grounds: Grounds) -> None:
        self._grounds = grounds
        self.under_way = 0
        self.total = 0

    def handler(self, descriptor: ServiceDescriptor, service: object) -> grpc.GenericRpcHandler:
        """All methods of a service; AttributeError for one that is missing, or declares no right."""
        rows = {method.name: self._row(method, service) for method in descriptor.methods}
        return grpc.method_handlers_generic_handler(descriptor.full_name, rows)

    def _row(self, method: MethodDescriptor, service: object) -> "grpc.RpcMethodHandler[Any, Any]":
        function = getattr(service, _WORDS.sub("_", method.name).lower())
        required: Needs = function.needs
        read, write = _reader(GetMessageClass(method.input_type)), GetMessageClass(method.output_type).SerializeToString
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream_stream, function, required), read, write)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(partial(self._unary_stream, function, required), read, write)
        return grpc.unary_unary_rpc_method_handler(partial(self._unary_unary, function, required), read, write)

    async def _unary_unary(self, function: Callable[..., Any], required: Needs, request: Any, context: Context) -> Any:
        async with self._told(context):
            self._admit(required, request, context)
            return await function(request, Call(self._grounds, context))

    async def _unary_stream(
        self, function: Callable[..., Any], required: Needs, request: Any, context: Context
    ) -> None:
        async with self._told(context):
            self._admit(required, request, context)
            await function(request, Call(self._grounds, context), context.write)

    async def _stream_stream(
        self, function: Callable[..., Any], required: Needs, requests: AsyncIterator[Any], context: Context
    ) -> None:
        async with self._told(context):
            await function(self._admitted(required, requests, context), Call(self._grounds, context), context.write)

    @asynccontextmanager
    async def _told(self, context: Context) -> AsyncIterator[None]:
        """Counts a call; and the one place where failures become statuses."""
        self.under_way += 1
        self.total += 1
        try:
            yield
        except Exception as error:
            await _tell(error, context)
        finally:
            self.under_way -= 1

    async def _admitted(self, required: Needs, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async for request in requests:
            self._admit(required, request, context)
            yield request

    def _admit(self, required: Needs, request: Any, context: Context) -> None:
        if isinstance(request, _Malformed):
            raise invalid("request", f"cannot be read: {request.why}")
        required.check(self._grounds.guard, Caller(context.peer()), request)


async def _tell(error: Exception, context: Context) -> None:
    if isinstance(error, grpc.aio.AbortError | grpc.aio.BaseError):
        raise error
    if isinstance(error, TimeoutError):
        error = PenstockError(ErrorCode.REQUEST_TIMED_OUT, "not finished in time; what became of it is not known")
    if not isinstance(error, PenstockError):
        log.error("a call met something unexpected", exc_info=error)
        error = PenstockError(ErrorCode.UNKNOWN_SERVER_ERROR, "the gateway met something unexpected; its log says what")
    told = rich_status(error)
    await context.abort(_CODES[told.code], told.message, ((DETAILS_KEY, told.SerializeToString()),))


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """Run these side by side until all are done; the first failure ends the others, and is raised."""
    await _side_by_side(works, asyncio.FIRST_EXCEPTION)


async def until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Run these side by side until one is done; that ends the others, and its failure is raised."""
    await _side_by_side(works, asyncio.FIRST_COMPLETED)


async def _side_by_side(works: Iterable[Coroutine[Any, Any, None]], until: str) -> None:
    tasks = [asyncio.get_running_loop().create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=until)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
