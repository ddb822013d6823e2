"""Wraps every gRPC method with the steps they share: rights, deadline, memory budget, error statuses and draining.

A service is a class with one method per RPC, in snake case. `needs` declares the right of each method. The signature
follows from the contract: `(request, call)` returns the response, `(request, call, write)` streams responses, and
`(requests, call, write)` streams both.
"""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from millstream.gateway.budget import Budget, Share
from millstream.gateway.draining import Draining
from millstream.gateway.failures import invalid
from millstream.gateway.grpc.limits import encoded_size
from millstream.gateway.grpc.message_conversion import to_messages
from millstream.gateway.grpc.statuses import DETAILS_KEY, rich_status
from millstream.gateway.grpc.v1 import events_pb2
from millstream.gateway.operations.clusters import DEFAULT, ServedCluster, ServedClusters
from millstream.gateway.traffic import NO_ROUTE, Traffic, now_s
from millstream.model.authorization import ALLOW_ALL, Access, Authorizer, Principal
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import READING, Right
from millstream.records.message import Message as StoredMessage

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Context = grpc.aio.ServicerContext[Any, Any]
Write = Callable[[Any], Awaitable[None]]

log = logging.getLogger(__name__)

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class RequiredRight(NamedTuple):
    """A right, and the request field that names the topic, topics or group on which it is needed."""

    right: Right
    field: str
    within: str
    cluster_field: str = "cluster"
    """The field that names the cluster; a request without this field concerns every cluster."""

    def check(self, authorizer: Authorizer, principal: Principal, request: Any) -> None:
        """Raise the right's error unless the principal has it on every resource that the request names."""
        owner = getattr(request, self.within) if self.within else request
        cluster = getattr(owner, self.cluster_field) or DEFAULT if hasattr(owner, self.cluster_field) else ""
        named = getattr(owner, self.field) if self.field else ""
        resources = [named] if isinstance(named, str) else list(named) or [""]
        Access(authorizer, principal, self.right, cluster).check_all(resources, getattr(owner, "group", None))

    def is_repeatable(self, request: Any) -> bool:
        """True if the call changes nothing, so that the client can repeat it."""
        return self.right in READING and not getattr(request, "auto_commit", False)


def needs(right: Right, field: str = "", *, within: str = "", cluster_field: str = "cluster") -> Callable[[F], F]:
    """Declare a method's right, and the fields of the message `within` that name resource and cluster."""

    def declared(function: F) -> F:
        function.needs = RequiredRight(right, field, within, cluster_field)  # type: ignore[attr-defined]
        return function

    return declared


class ServedMethod(NamedTuple):
    """The right that a method needs, and its full name, which is its route."""

    required: RequiredRight
    route: str


class CallDependencies(NamedTuple):
    """The objects that all calls share."""

    clusters: ServedClusters
    authorizer: Authorizer
    draining: Draining
    budget: Budget
    traffic: Traffic


class Call:
    """One call: its clusters, deadline, counters and drain state."""

    __slots__ = ("_context", "_dependencies", "building", "is_refusable")

    def __init__(self, dependencies: CallDependencies, context: Context, *, is_refusable: bool) -> None:
        """Prepare a call. With `is_refusable`, its response may be refused, because the client can repeat it."""
        self._dependencies = dependencies
        self._context = context
        self.is_refusable = is_refusable
        self.building = Share(dependencies.budget)
        """The memory of messages that are converted and not encoded yet."""
        context.add_done_callback(lambda _: self.building.give_back())  # type: ignore[arg-type]

    @property
    def client_host(self) -> str:
        return host_of(self._context.peer())

    @property
    def clusters(self) -> ServedClusters:
        return self._dependencies.clusters

    def cluster(self, name: str) -> ServedCluster:
        """Return the cluster that a request names. Raises UNKNOWN_CLUSTER if this gateway does not serve it."""
        return self._dependencies.clusters.get(name or DEFAULT)

    def timeout_s(self, cluster: ServedCluster) -> float:
        """Return the timeout of an operation: the cluster's timeout, but no longer than the call's deadline."""
        left_s = self._context.time_remaining()
        return cluster.timeout_s if left_s is None else max(0.001, min(cluster.timeout_s, left_s))

    def wait_s(self, wanted_s: float) -> float:
        """Shorten a wait so that it ends before the call's deadline, and the client still gets a response."""
        left_s = self._context.time_remaining()
        return wanted_s if left_s is None else max(0.0, min(wanted_s, left_s - min(0.2, left_s / 5)))

    @property
    def traffic(self) -> Traffic:
        return self._dependencies.traffic

    def read(self, messages: Sequence[StoredMessage]) -> list[events_pb2.Message]:
        """Convert messages to the contract's form and count them, before that also as held memory.

        Raises GATEWAY_FULL if they exceed the budget.
        """
        self.building.take(sum(map(encoded_size, messages)), is_refusable=self.is_refusable)
        self._dependencies.traffic.events_read += len(messages)
        return to_messages(messages)

    @property
    def draining(self) -> Draining:
        return self._dependencies.draining

    @property
    def is_drained(self) -> bool:
        return self._dependencies.draining.has_begun

    async def waiting(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await `work`, which may take long. Returns None if the gateway drains meanwhile."""
        return await self._dependencies.draining.waiting(work)


def shutting_down() -> MillstreamError:
    """Return the error that ends streams when the gateway drains."""
    return MillstreamError(ErrorCode.SHUTTING_DOWN, "the gateway is shutting down; retry at another gateway")


class _Received(NamedTuple):
    """A decoded request, or the reason why it cannot be decoded. The error is raised inside the call's handler."""

    message: Any
    error: str
    size_bytes: int


def _reader(kind: type[Message]) -> Callable[[bytes], _Received]:
    def read(data: bytes) -> _Received:
        try:
            return _Received(kind.FromString(data), "", len(data))
        except DecodeError as error:
            return _Received(None, str(error), len(data))

    return read


class CallWrapper:
    """Wraps service methods: checks the right before the call and turns every exception into a status."""

    def __init__(self, dependencies: CallDependencies) -> None:
        self._dependencies = dependencies
        self.under_way = 0

    def handler(self, descriptor: ServiceDescriptor, service: object) -> grpc.GenericRpcHandler:
        """Return the handlers of a service. Raises AttributeError if a method is missing or declares no right."""
        rows = {method.name: self._row(method, service) for method in descriptor.methods}
        return grpc.method_handlers_generic_handler(descriptor.full_name, rows)

    def _row(self, method: MethodDescriptor, service: object) -> "grpc.RpcMethodHandler[Any, Any]":
        function = getattr(service, _WORDS.sub("_", method.name).lower())
        served = ServedMethod(function.needs, f"/{method.containing_service.full_name}/{method.name}")
        read = _reader(GetMessageClass(method.input_type))
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream_stream, function, served), read)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(partial(self._unary_stream, function, served), read)
        return grpc.unary_unary_rpc_method_handler(partial(self._unary_unary, function, served), read)

    async def _unary_unary(
        self, function: Callable[..., Any], served: ServedMethod, received: _Received, context: Context
    ) -> bytes:
        required = served.required
        async with self._reporting_errors(served, context):
            share = Share(self._dependencies.budget)
            # Runs when the client has received the answer or is gone. The stubs expect a class of their own here.
            context.add_done_callback(lambda _: share.give_back())  # type: ignore[arg-type]
            request = self._admit(required, received, context)
            share.take(received.size_bytes)
            call = Call(self._dependencies, context, is_refusable=required.is_repeatable(request))
            answer = await function(request, call)
            return self._written(answer, call, share)

    async def _unary_stream(
        self, function: Callable[..., Any], served: ServedMethod, received: _Received, context: Context
    ) -> None:
        required = served.required
        async with self._reporting_errors(served, context):
            request = self._admit(required, received, context)
            call = self._streaming(required, context)
            await function(request, call, self._writer(call, context))

    async def _stream_stream(
        self,
        function: Callable[..., Any],
        served: ServedMethod,
        requests: AsyncIterator[_Received],
        context: Context,
    ) -> None:
        required = served.required
        async with self._reporting_errors(served, context):
            admitted = self._admitted(required, requests, context)
            call = self._streaming(required, context)
            await function(admitted, call, self._writer(call, context))

    def _streaming(self, required: RequiredRight, context: Context) -> Call:
        return Call(self._dependencies, context, is_refusable=required.right is Right.MESSAGES_READ)

    def _writer(self, call: Call, context: Context) -> Write:
        """Make a function that sends one message of a stream and returns when flow control permits the next."""

        async def write(answer: Message) -> None:
            share = Share(self._dependencies.budget)
            data = self._written(answer, call, share)
            try:
                await context.write(data)
            finally:
                share.give_back()

        return write

    def _written(self, answer: Message, call: Call, share: Share) -> bytes:
        """Encode the response and count it as held memory. Raises GATEWAY_FULL if it exceeds the budget."""
        share.take(answer.ByteSize(), is_refusable=call.is_refusable)
        data = answer.SerializeToString()
        call.building.give_back()
        self._dependencies.traffic.sent_bytes += len(data)
        return data

    @asynccontextmanager
    async def _reporting_errors(self, served: ServedMethod, context: Context) -> AsyncIterator[None]:
        """Count a call and turn its exception into a status."""
        self.under_way += 1
        begun_s = now_s()
        refusal, status = None, grpc.StatusCode.CANCELLED
        try:
            yield
            status = grpc.StatusCode.OK
        except Exception as error:
            status = grpc.StatusCode.UNKNOWN
            failure = _failure_of(error)
            if failure is None:
                raise
            refusal = rich_status(failure)
            status = _CODES[refusal.code]
        finally:
            # Count before the client gets the status, since it may read the metrics next.
            right, route = served.required.right, served.route
            peer = address_of(context.peer())
            traffic = self._dependencies.traffic
            traffic.answered(right, route, status.name, begun_s=begun_s, method="POST", peer=peer)
            self.under_way -= 1
        if refusal is not None:
            await context.abort(status, refusal.message, ((DETAILS_KEY, refusal.SerializeToString()),))

    async def _admitted(
        self, required: RequiredRight, requests: AsyncIterator[_Received], context: Context
    ) -> AsyncIterator[Any]:
        async for received in requests:
            yield self._admit(required, received, context)

    def _admit(self, required: RequiredRight, received: _Received, context: Context) -> Any:
        self._dependencies.traffic.received_bytes += received.size_bytes
        if received.error:
            raise invalid("request", f"cannot be decoded: {received.error}")
        authorizer = self._dependencies.authorizer
        if authorizer is not ALLOW_ALL:
            required.check(authorizer, Principal(host_of(context.peer())), received.message)
        return received.message


def address_of(peer: str) -> str:
    """Return address and port of a peer as gRPC names it (see `host_of`)."""
    kind, _, address = unquote(peer).partition(":")
    return address if kind in ("ipv4", "ipv6") else peer


def host_of(peer: str) -> str:
    """Return the host of a peer as gRPC names it, such as `ipv4:10.0.0.7:5000` or `ipv6:%5B::1%5D:5000`."""
    kind, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else address or peer


def _failure_of(error: Exception) -> MillstreamError | None:
    """Convert an exception to an error of the table. Returns None for exceptions of gRPC itself."""
    if isinstance(error, grpc.aio.AbortError | grpc.aio.BaseError):
        return None
    if isinstance(error, MillstreamError):
        return error
    if isinstance(error, TimeoutError):
        return MillstreamError(ErrorCode.REQUEST_TIMED_OUT, "the call timed out; its outcome is unknown")
    log.error("call failed unexpectedly", exc_info=error)
    return MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR, "unexpected error; see the gateway's log")


class UnknownMethods(grpc.GenericRpcHandler):
    """Counts calls of methods that no service has. It must be the last handler; gRPC answers UNIMPLEMENTED then."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
        status = grpc.StatusCode.UNIMPLEMENTED.name
        self._traffic.answered(Right.NOTHING, NO_ROUTE, status, begun_s=now_s(), method="POST", peer="")
