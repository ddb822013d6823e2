"""Implements the client side of one connection without I/O: received bytes in, decoded events out.

Invariants:
- Only ApiVersions is sent before the broker's versions are known (state READY).
- Responses arrive in the order of the requests, as Kafka's protocol guarantees: the next response has the oldest
  waiting correlation id. Only further frames of streaming requests may arrive in between. Any other frame means that
  client and broker are out of step. The core then raises `ProtocolError`, is closed permanently, and the caller must
  close the connection.
- At most one frame is held in memory, and it is never larger than `frame_bytes_max`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import REQUEST_BYTES_MAX
from millstream.records.record_decoder import room
from millstream.wire.framing import SIZE, Buffer, frame_request, read_correlation_id, read_response_header

T = TypeVar("T")

STAGING_BYTES = 32 * 1024
"""Size of a read between frames: it fits many small responses or the beginning of a large one."""

_CORRELATION_MAX = 2**31 - 1


class ProtocolError(MillstreamError):
    """The peer does not speak the protocol, or client and broker are out of step."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, detail)


class Api(NamedTuple):
    """One API and the versions of it that this client supports."""

    key: int
    name: str
    version_min: int
    version_max: int


API_VERSIONS = Api(18, "ApiVersions", 0, 4)


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[T]):
    """A request in any version. Its body is encoded once the connection's version of the API is known."""

    api: Api
    encode: Callable[[int], Sequence[Buffer]]
    """Encodes the body for a version."""
    decode: Callable[[int, memoryview, int], T | MillstreamError]
    """Decodes a response from its version, its frame and the position of its body. Returns the value, or the broker's
    refusal as an error. It may raise any exception for malformed bytes."""
    answered: bool = True
    """False for a request that has no response (Produce with acks=0)."""
    stands: bool = False
    """True for a streaming request: further frames with its correlation id, in the same layout, follow its response."""
    wait_s: float = 0.0
    """The time for which the broker may hold the request before it responds, as in a long poll."""


class VersionRange(NamedTuple):
    version_min: int
    version_max: int


class BrokerVersions(NamedTuple):
    """The decoded response to ApiVersions."""

    error_number: int
    ranges: Mapping[int, VersionRange]


class Ready(NamedTuple):
    """The versions are known; requests may be sent."""

    versions: Mapping[int, VersionRange]


class ApiResponse(NamedTuple):
    """The decoded response to a request. The value is a MillstreamError if the broker refused the request."""

    correlation_id: int
    value: Any


class FurtherFrame(NamedTuple):
    """A decoded frame that follows the response to a streaming request."""

    correlation_id: int
    value: Any


Event = Ready | ApiResponse | FurtherFrame


class ConnectionState(Enum):
    NEW = "new"
    GREETING = "greeting"
    READY = "ready"
    CLOSED = "closed"


class _Waiting(NamedTuple):
    correlation_id: int
    version: int
    request: ApiRequest[Any]


class ConnectionCore:
    """The state machine of one connection. The caller transfers the bytes; the core encodes and decodes them."""

    def __init__(
        self, client_id: str, greeting: ApiRequest[BrokerVersions], *, frame_bytes_max: int = REQUEST_BYTES_MAX
    ) -> None:
        self._client_id = client_id
        self._greeting = greeting
        self._frame_bytes_max = frame_bytes_max
        self._waiting: deque[_Waiting] = deque()
        self._standing: dict[int, _Waiting] = {}
        self._next_id = 0
        self._versions: Mapping[int, VersionRange] = {}
        self._outgoing: list[Buffer] = []
        self._staging = memoryview(bytearray(STAGING_BYTES))
        self._head = bytearray()
        self._frame: bytearray | None = None
        self._filled = 0
        self.state = ConnectionState.NEW

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a response."""
        return len(self._waiting)

    def greet(self) -> None:
        """Send ApiVersions. The event `Ready` follows."""
        assert self.state is ConnectionState.NEW
        self.state = ConnectionState.GREETING
        self._send(self._greeting, self._greeting.api.version_max)

    def version_of(self, api: Api) -> int:
        """Return the newest version that client and broker support. Raises UNSUPPORTED_VERSION with both ranges."""
        offered = self._versions.get(api.key)
        if offered is None:
            raise MillstreamError(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker does not serve {api.name} (key {api.key})"
            )
        version = min(api.version_max, offered.version_max)
        if version < max(api.version_min, offered.version_min):
            raise MillstreamError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{api.name}: this client supports versions {api.version_min} to {api.version_max}, "
                f"the broker {offered.version_min} to {offered.version_max}",
            )
        return version

    def serves(self, api: Api) -> bool:
        """True if the broker has this API in any version."""
        return api.key in self._versions

    def send(self, request: ApiRequest[Any]) -> int:
        """Queue a request and return its correlation id. `take_outgoing` returns the bytes to send."""
        if self.state is not ConnectionState.READY:
            raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"the connection is {self.state.value}, not ready")
        return self._send(request, self.version_of(request.api))

    def forget(self, correlation_id: int) -> None:
        """End a streaming request, because no further frames of it will arrive."""
        self._standing.pop(correlation_id, None)

    def take_outgoing(self) -> list[Buffer]:
        """Return the bytes that were queued since the last call."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def buffer(self) -> memoryview:
        """Return the buffer for the next received bytes.

        A large frame has its own buffer, so most of it is received without a copy.
        """
        return self._staging if self._frame is None else memoryview(self._frame)[self._filled :]

    @property
    def missing_bytes(self) -> int:
        """Number of bytes that the current frame still lacks, or 0 if no frame has begun."""
        return 0 if self._frame is None else len(self._frame) - self._filled

    def received(self, count: int) -> list[Event]:
        """Process `count` bytes that were read into `buffer()`. Returns the events, as `receive` does."""
        if self._frame is None or self.state is ConnectionState.CLOSED:
            return self.receive(self._staging[:count])
        self._filled += count
        if self._filled < len(self._frame):
            return []
        return self.receive(b"")

    def receive(self, data: Buffer) -> list[Event]:
        """Process received bytes, in pieces of any size, and return the decoded events in order."""
        if self.state is ConnectionState.CLOSED:
            return []
        events: list[Event] = []
        view = memoryview(data)
        try:
            while True:
                if self._frame is not None and self._filled == len(self._frame):
                    frame, self._frame = self._frame, None
                    events.extend(self._understand(memoryview(frame)))
                if not len(view):
                    break
                view = self._fill_frame(view) if self._frame is not None else self._fill_head(view)
        except MillstreamError:
            self.close()
            raise
        return events

    def close(self) -> None:
        """Close the core: nothing more is sent or decoded."""
        self.state = ConnectionState.CLOSED
        self._waiting.clear()
        self._standing.clear()
        self._outgoing.clear()
        self._frame = None

    def _send(self, request: ApiRequest[Any], version: int) -> int:
        api = request.api
        is_ready = self.state is ConnectionState.READY
        assert is_ready or request is self._greeting, "only ApiVersions is sent before the versions are known"
        correlation_id = self._next_id
        pieces = frame_request(
            api.name,
            api.key,
            version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
            body=request.encode(version),
        )
        size = sum(map(len, pieces)) - SIZE.size
        if size > self._frame_bytes_max:
            raise MillstreamError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the {api.name} request has {size} bytes; the maximum is {self._frame_bytes_max}",
            )
        self._next_id = (correlation_id + 1) & _CORRELATION_MAX
        while self._next_id in self._standing:
            self._next_id = (self._next_id + 1) & _CORRELATION_MAX
        self._outgoing += pieces
        if request.answered:
            self._waiting.append(_Waiting(correlation_id, version, request))
        return correlation_id

    def _fill_head(self, view: memoryview) -> memoryview:
        """Collect the four bytes of a frame's size and allocate the frame."""
        taken = view[: 4 - len(self._head)]
        self._head += taken
        if len(self._head) == 4:
            (size,) = SIZE.unpack(self._head)
            self._head.clear()
            if not 4 <= size <= self._frame_bytes_max:
                raise ProtocolError(
                    f"the peer announces a response of {size} bytes (valid: 4 to {self._frame_bytes_max}); "
                    "check that the port is a Kafka listener"
                )
            self._frame = room(size)
            self._filled = 0
        return view[len(taken) :]

    def _fill_frame(self, view: memoryview) -> memoryview:
        assert self._frame is not None
        taken = view[: len(self._frame) - self._filled]
        end = self._filled + len(taken)
        self._frame[self._filled : end] = taken
        self._filled = end
        return view[len(taken) :]

    def _understand(self, frame: memoryview) -> list[Event]:
        correlation_id = read_correlation_id(frame)
        standing = self._standing.get(correlation_id)
        if standing is not None:
            return [FurtherFrame(correlation_id, _decoded(standing, frame))]
        if not self._waiting:
            raise ProtocolError(f"received a response with correlation id {correlation_id}, but no request is waiting")
        waiting = self._waiting.popleft()
        if waiting.correlation_id != correlation_id:
            raise ProtocolError(
                f"received a response with correlation id {correlation_id}, "
                f"expected {waiting.correlation_id} ({waiting.request.api.name})"
            )
        if waiting.request is self._greeting:
            return self._greeted(waiting, frame)
        if waiting.request.stands:
            self._standing[correlation_id] = waiting
        return [ApiResponse(correlation_id, _decoded(waiting, frame))]

    def _greeted(self, waiting: _Waiting, frame: memoryview) -> list[Event]:
        """Store the broker's versions. A broker that does not support this version of ApiVersions answers in version 0
        with its own range."""
        refused = int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION.number
        versions: BrokerVersions = _decoded(waiting._replace(version=0) if refused else waiting, frame)
        if refused:
            return self._greet_again(versions)
        if versions.error_number:
            raise MillstreamError.from_number(versions.error_number, "the broker refuses ApiVersions")
        self._versions = versions.ranges
        self.state = ConnectionState.READY
        return [Ready(versions.ranges)]

    def _greet_again(self, versions: BrokerVersions) -> list[Event]:
        offered = versions.ranges.get(API_VERSIONS.key, VersionRange(0, 0))
        version = min(offered.version_max, API_VERSIONS.version_max - 1)
        if self._next_id > 1 or version < API_VERSIONS.version_min:
            raise MillstreamError(ErrorCode.UNSUPPORTED_VERSION, "client and broker share no version of ApiVersions")
        self._send(self._greeting, version)
        return []


def _decoded(waiting: _Waiting, frame: memoryview) -> Any:
    name = waiting.request.api.name
    try:
        _, body_start = read_response_header(name, waiting.version, frame)
        return waiting.request.decode(waiting.version, frame, body_start)
    except Exception as error:
        # Malformed bytes can raise any exception in a decoder. All of them mean that the response is malformed.
        detail = error.detail if isinstance(error, MillstreamError) else f"{type(error).__name__}: {error}"
        raise ProtocolError(f"cannot decode the response to {name} (version {waiting.version}): {detail}") from error
