"""What all methods have in common, in one place: the right that a call needs, its deadline, how its failures are told,
and what becomes of it when the gateway is drained.

A service is a class with a method for each of the contract's, in snake case, that says by `needs` what right it needs.
How it is called follows from the contract: `(request, call)` gives the response; where responses are a stream it is
`(request, call, write)`; where requests are one too, `(requests, call, write)`.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from millstream.gateway.budget import Budget, Share
from millstream.gateway.draining import Draining
from millstream.gateway.failures import invalid
from millstream.gateway.grpc.message_conversion import messages_told
from millstream.gateway.grpc.statuses import DETAILS_KEY, rich_status
from millstream.gateway.grpc.v1 import events_pb2
from millstream.gateway.operations.clusters import DEFAULT, ServedCluster, ServedClusters
from millstream.gateway.rights import READING, Caller, Right, RightsGuard, check_all
from millstream.gateway.traffic import Traffic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.message import Message as StoredMessage

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Context = grpc.aio.ServicerContext[Any, Any]
Write = Callable[[Any], Awaitable[None]]

log = logging.getLogger(__name__)

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class RequiredRight(NamedTuple):
    """A right, and which field of the request names what it is needed on: a topic, topics or a group."""

    right: Right
    field: str
    within: str

    def check(self, guard: RightsGuard, caller: Caller, request: Any) -> None:
        """Raise what the guard does."""
        owner = getattr(request, self.within) if self.within else request
        cluster = getattr(owner, "cluster", "") or DEFAULT
        named = getattr(owner, self.field) if self.field else ""
        resources = [named] if isinstance(named, str) else list(named) or [""]
        check_all(guard, caller, self.right, cluster, resources, getattr(owner, "group", None))

    def is_repeatable(self, request: Any) -> bool:
        """Whether nothing has changed by the call, so that it can be made again."""
        return self.right in READING and not getattr(request, "auto_commit", False)


def needs(right: Right, field: str = "", *, within: str = "") -> Callable[[F], F]:
    """Declare what a method needs: the right, the field that names the resource, and the message that field is in."""

    def declared(function: F) -> F:
        function.needs = RequiredRight(right, field, within)  # type: ignore[attr-defined]
        return function

    return declared


class CallDependencies(NamedTuple):
    """What calls stand on."""

    clusters: ServedClusters
    guard: RightsGuard
    draining: Draining
    budget: Budget
    traffic: Traffic


class Call:
    """One call, as its method sees it."""

    __slots__ = ("_context", "_grounds")

    def __init__(self, grounds: CallDependencies, context: Context) -> None:
        self._grounds = grounds
        self._context = context

    @property
    def clusters(self) -> ServedClusters:
        return self._grounds.clusters

    def cluster(self, name: str) -> ServedCluster:
        """The cluster that a request names; UNKNOWN_CLUSTER when this gateway does not serve it."""
        return self._grounds.clusters.get(name or DEFAULT)

    def timeout_s(self, cluster: ServedCluster) -> float:
        """How long an operation may take: as long as any may, but no longer than the caller waits."""
        left_s = self._context.time_remaining()
        return cluster.timeout_s if left_s is None else max(0.001, min(cluster.timeout_s, left_s))

    def wait_s(self, wanted_s: float) -> float:
        """How long to wait for a message: a little less than the caller does, who would hear nothing otherwise."""
        left_s = self._context.time_remaining()
        return wanted_s if left_s is None else max(0.0, min(wanted_s, left_s - min(0.2, left_s / 5)))

    @property
    def traffic(self) -> Traffic:
        return self._grounds.traffic

    def read(self, messages: Sequence[StoredMessage]) -> list[events_pb2.Message]:
        """Messages as they are told, and counted."""
        self._grounds.traffic.events_read += len(messages)
        return messages_told(messages)

    @property
    def draining(self) -> Draining:
        return self._grounds.draining

    @property
    def is_drained(self) -> bool:
        return self._grounds.draining.has_begun

    async def waiting(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives, which may take long; None when the gateway is drained meanwhile."""
        return await self._grounds.draining.waiting(work)


def shutting_down() -> MillstreamError:
    """What streams end with when the gateway is drained."""
    return MillstreamError(ErrorCode.SHUTTING_DOWN, "the gateway is being stopped; call again, another will answer")


class _Received(NamedTuple):
    """A request, or why it cannot be read, until there is somebody to tell."""

    message: Any
    why: str
    size_bytes: int


def _reader(kind: type[Message]) -> Callable[[bytes], _Received]:
    def read(data: bytes) -> _Received:
        try:
            return _Received(kind.FromString(data), "", len(data))
        except DecodeError as error:
            return _Received(None, str(error), len(data))

    return read


class CallWrapper:
    """Wraps the methods of services: nothing is called without its right, and nothing fails but by name."""

    def __init__(self, grounds: CallDependencies) -> None:
        self._grounds = grounds
        self.under_way = 0

    def handler(self, descriptor: ServiceDescriptor, service: object) -> grpc.GenericRpcHandler:
        """All methods of a service; AttributeError for one that is missing, or declares no right."""
        rows = {method.name: self._row(method, service) for method in descriptor.methods}
        return grpc.method_handlers_generic_handler(descriptor.full_name, rows)

    def _row(self, method: MethodDescriptor, service: object) -> "grpc.RpcMethodHandler[Any, Any]":
        function = getattr(service, _WORDS.sub("_", method.name).lower())
        required: RequiredRight = function.needs
        read = _reader(GetMessageClass(method.input_type))
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream_stream, function, required), read)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(partial(self._unary_stream, function, required), read)
        return grpc.unary_unary_rpc_method_handler(partial(self._unary_unary, function, required), read)

    async def _unary_unary(
        self, function: Callable[..., Any], required: RequiredRight, received: _Received, context: Context
    ) -> bytes:
        async with self._told(required, context):
            share = Share(self._grounds.budget)
            # When the answer has been taken, or never will be. The stubs want a class of their own there.
            context.add_done_callback(lambda _: share.give_back())  # type: ignore[arg-type]
            request = self._admit(required, received, context)
            share.take(received.size_bytes)
            answer = await function(request, Call(self._grounds, context))
            return self._written(answer, share, is_refusable=required.is_repeatable(request))

    async def _unary_stream(
        self, function: Callable[..., Any], required: RequiredRight, received: _Received, context: Context
    ) -> None:
        async with self._told(required, context):
            request = self._admit(required, received, context)
            await function(request, Call(self._grounds, context), self._writer(required, context))

    async def _stream_stream(
        self,
        function: Callable[..., Any],
        required: RequiredRight,
        requests: AsyncIterator[_Received],
        context: Context,
    ) -> None:
        async with self._told(required, context):
            admitted = self._admitted(required, requests, context)
            await function(admitted, Call(self._grounds, context), self._writer(required, context))

    def _writer(self, required: RequiredRight, context: Context) -> Write:
        """Sends one answer of a stream, and comes back when the caller makes room for the next."""

        async def write(answer: Message) -> None:
            share = Share(self._grounds.budget)
            data = self._written(answer, share, is_refusable=required.right is Right.MESSAGES_READ)
            try:
                await context.write(data)
            finally:
                share.give_back()

        return write

    def _written(self, answer: Message, share: Share, *, is_refusable: bool) -> bytes:
        """The answer's bytes, which count as held. GATEWAY_FULL where that is too much."""
        data = answer.SerializeToString()
        share.take(len(data), is_refusable=is_refusable)
        self._grounds.traffic.sent_bytes += len(data)
        return data

    @asynccontextmanager
    async def _told(self, required: RequiredRight, context: Context) -> AsyncIterator[None]:
        """Counts a call; and the one place where failures become statuses."""
        self.under_way += 1
        refusal, status = None, grpc.StatusCode.CANCELLED
        try:
            yield
            status = grpc.StatusCode.OK
        except Exception as error:
            status = grpc.StatusCode.UNKNOWN
            failure = _named(error)
            if failure is None:
                raise
            refusal = rich_status(failure)
            status = _CODES[refusal.code]
        finally:
            # Before the caller knows, who may ask for the figures next.
            self._grounds.traffic.answered(required.right, status.name)
            self.under_way -= 1
        if refusal is not None:
            await context.abort(status, refusal.message, ((DETAILS_KEY, refusal.SerializeToString()),))

    async def _admitted(
        self, required: RequiredRight, requests: AsyncIterator[_Received], context: Context
    ) -> AsyncIterator[Any]:
        async for received in requests:
            yield self._admit(required, received, context)

    def _admit(self, required: RequiredRight, received: _Received, context: Context) -> Any:
        self._grounds.traffic.received_bytes += received.size_bytes
        if received.why:
            raise invalid("request", f"cannot be read: {received.why}")
        required.check(self._grounds.guard, Caller(context.peer()), received.message)
        return received.message


def _named(error: Exception) -> MillstreamError | None:
    """What a call fails with; None for what gRPC itself has raised."""
    if isinstance(error, grpc.aio.AbortError | grpc.aio.BaseError):
        return None
    if isinstance(error, MillstreamError):
        return error
    if isinstance(error, TimeoutError):
        return MillstreamError(ErrorCode.REQUEST_TIMED_OUT, "not finished in time; what became of it is not known")
    log.error("a call met something unexpected", exc_info=error)
    return MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR, "the gateway met something unexpected; its log says what")


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
