"""One connection's half of the protocol, without I/O: bytes in, events out.

Invariants:
- Nothing but ApiVersions is sent before the broker's versions are known (state READY).
- Answers come in the order of the requests, as Kafka's protocol promises: the oldest waiting correlation id is the
  only one that may come next. Between them comes only what belongs to a request that stands: one that was answered, and
  goes on. Anything else means that the two ends no longer speak of the same thing, so the core raises `ProtocolError`,
  is closed for good, and the connection must go.
- At most one frame is held in memory, and never one larger than `frame_bytes_max`.
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
"""Read at once where no frame is under way: many small answers, or the beginning of a large one."""

_CORRELATION_MAX = 2**31 - 1


class ProtocolError(MillstreamError):
    """The peer does not speak the protocol, or the two ends have lost step."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, detail)


class Api(NamedTuple):
    """One API as this client speaks it."""

    key: int
    name: str
    version_min: int
    version_max: int


API_VERSIONS = Api(18, "ApiVersions", 0, 4)


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[T]):
    """What to ask, in any version: the body is made once the connection's version of the API is known."""

    api: Api
    encode: Callable[[int], Sequence[Buffer]]
    """Version to body."""
    decode: Callable[[int, memoryview, int], T | MillstreamError]
    """Version, frame and where the body begins, to the answer or the broker's refusal; raises anything on nonsense."""
    answered: bool = True
    """False for what the broker never answers (a Produce with acks=0)."""
    stands: bool = False
    """True for what is not over with its answer: further frames with its correlation id follow, in the same layout."""


class VersionRange(NamedTuple):
    version_min: int
    version_max: int


class BrokerVersions(NamedTuple):
    """The decoded answer to ApiVersions."""

    error_number: int
    ranges: Mapping[int, VersionRange]


class Ready(NamedTuple):
    """The versions are known; requests may be sent."""

    versions: Mapping[int, VersionRange]


class ApiResponse(NamedTuple):
    """A request's answer, decoded; a MillstreamError where the broker refused."""

    correlation_id: int
    value: Any


class FurtherFrame(NamedTuple):
    """What follows the answer to a request that stands, decoded alike."""

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
    """The state machine of one connection. The caller moves the bytes; the core decides what they mean."""

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
        """How many requests wait for their answers."""
        return len(self._waiting)

    def greet(self) -> None:
        """Ask for the broker's versions; `Ready` follows."""
        assert self.state is ConnectionState.NEW
        self.state = ConnectionState.GREETING
        self._send(self._greeting, self._greeting.api.version_max)

    def version_of(self, api: Api) -> int:
        """The version both ends speak; UNSUPPORTED_VERSION, naming both ranges, when there is none."""
        offered = self._versions.get(api.key)
        if offered is None:
            raise MillstreamError(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker does not serve {api.name} (key {api.key})"
            )
        version = min(api.version_max, offered.version_max)
        if version < max(api.version_min, offered.version_min):
            raise MillstreamError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{api.name}: this client speaks versions {api.version_min} to {api.version_max}, "
                f"the broker {offered.version_min} to {offered.version_max}",
            )
        return version

    def serves(self, api: Api) -> bool:
        """Whether the broker has this API at all."""
        return api.key in self._versions

    def send(self, request: ApiRequest[Any]) -> int:
        """Queue a request; its correlation id. Take the bytes with `take_outgoing`."""
        if self.state is not ConnectionState.READY:
            raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"the connection is {self.state.value}, not ready")
        return self._send(request, self.version_of(request.api))

    def forget(self, correlation_id: int) -> None:
        """A request that stood is over: nothing that belongs to it will come."""
        self._standing.pop(correlation_id, None)

    def take_outgoing(self) -> list[Buffer]:
        """The bytes to send since the last call."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def buffer(self) -> memoryview:
        """Where the next bytes from the peer are to be put: most of a large frame comes straight into place."""
        return self._staging if self._frame is None else memoryview(self._frame)[self._filled :]

    @property
    def missing_bytes(self) -> int:
        """How much of the frame that has begun is still to come; 0 where none has."""
        return 0 if self._frame is None else len(self._frame) - self._filled

    def received(self, count: int) -> list[Event]:
        """So many bytes have been put into `buffer()`; what they mean, as `receive` says it."""
        if self._frame is None or self.state is ConnectionState.CLOSED:
            return self.receive(self._staging[:count])
        self._filled += count
        if self._filled < len(self._frame):
            return []
        return self.receive(b"")

    def receive(self, data: Buffer) -> list[Event]:
        """Take what came from the peer, in pieces of any size; what it means, in order."""
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
        """No more is sent or understood."""
        self.state = ConnectionState.CLOSED
        self._waiting.clear()
        self._standing.clear()
        self._outgoing.clear()
        self._frame = None

    def _send(self, request: ApiRequest[Any], version: int) -> int:
        api = request.api
        correlation_id = self._next_id
        pieces = frame_request(api.name, api.key, version, correlation_id, self._client_id, request.encode(version))
        size = sum(map(len, pieces)) - SIZE.size
        if size > self._frame_bytes_max:
            raise MillstreamError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the {api.name} request has {size} bytes, {self._frame_bytes_max} are allowed",
            )
        self._next_id = (correlation_id + 1) & _CORRELATION_MAX
        while self._next_id in self._standing:
            self._next_id = (self._next_id + 1) & _CORRELATION_MAX
        self._outgoing += pieces
        if request.answered:
            self._waiting.append(_Waiting(correlation_id, version, request))
        return correlation_id

    def _fill_head(self, view: memoryview) -> memoryview:
        """Collect the four bytes of a frame's size, and make room for the frame."""
        taken = view[: 4 - len(self._head)]
        self._head += taken
        if len(self._head) == 4:
            (size,) = SIZE.unpack(self._head)
            self._head.clear()
            if not 4 <= size <= self._frame_bytes_max:
                raise ProtocolError(
                    f"the peer announces an answer of {size} bytes (4 to {self._frame_bytes_max} are possible); "
                    "is this the port of a Kafka listener?"
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
            raise ProtocolError(f"an answer with correlation id {correlation_id} came, but nothing was asked")
        waiting = self._waiting.popleft()
        if waiting.correlation_id != correlation_id:
            raise ProtocolError(
                f"an answer with correlation id {correlation_id} came where {waiting.correlation_id} "
                f"({waiting.request.api.name}) was due"
            )
        if waiting.request is self._greeting:
            return self._greeted(waiting, frame)
        if waiting.request.stands:
            self._standing[correlation_id] = waiting
        return [ApiResponse(correlation_id, _decoded(waiting, frame))]

    def _greeted(self, waiting: _Waiting, frame: memoryview) -> list[Event]:
        """Learn the versions. A broker that does not know our ApiVersions answers in version 0, with its own range."""
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
            raise MillstreamError(ErrorCode.UNSUPPORTED_VERSION, "the broker serves no ApiVersions this client speaks")
        self._send(self._greeting, version)
        return []


def _decoded(waiting: _Waiting, frame: memoryview) -> Any:
    name = waiting.request.api.name
    try:
        _, body_start = read_response_header(name, waiting.version, frame)
        return waiting.request.decode(waiting.version, frame, body_start)
    except Exception as error:
        # A decoder meets nonsense in as many ways as there are fields; all of them mean the same.
        detail = error.detail if isinstance(error, MillstreamError) else f"{type(error).__name__}: {error}"
        raise ProtocolError(f"the answer to {name} (version {waiting.version}) cannot be read: {detail}") from error
