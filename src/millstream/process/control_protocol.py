"""Defines the protocol of a supervisor's control socket, and its client.

Each line is a JSON object: a request, then its response. `millstream serve` creates the socket in its first data
directory, and only the owner can connect. A connection with a `watch` request stays open: it receives the clusters now
and after every change. The gateway at its other end counts as running while the connection is open.

The supervisor also sends pings on a watching connection. The child process at its other end answers each ping with its
problems, which shows that its event loop runs.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from millstream.model.errors import ErrorCode, FieldError, MillstreamError

SOCKET_NAME = "control.sock"
LINE_BYTES_MAX = 1024 * 1024
CONNECT_TIMEOUT_S = 10.0

BROKERS_UNLESS_SAID = 3
BROKERS_MAX = 16
"""Maximum number of brokers in one cluster."""
AGAIN_S = 0.05
PROBLEMS_MAX = 10
PROBLEM_CHARACTERS_MAX = 500
"""Longest part of a problem in an answer to a ping, so that a request stays below the socket's limit."""

ProblemSource = Callable[[], Awaitable[Sequence[str]]]


class NewCluster(Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster to create. Its log directories are inside the cluster's own: one for all brokers, or one for each."""

    name: str
    brokers: int = BROKERS_UNLESS_SAID
    log_directories: tuple[str, ...] = ()
    partitions: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None


class BrokerFacts(Struct, frozen=True):
    """A broker of a cluster. `problem` says how it last ended unexpectedly; the supervisor keeps restarting it."""

    node_id: int
    host: str
    port: int
    is_running: bool
    problem: str = ""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class ClusterFacts(Struct, frozen=True):
    """A cluster and its state. A stopped cluster stays stopped until it is started by name."""

    name: str
    brokers: tuple[BrokerFacts, ...]
    is_stopped: bool
    log_directories: tuple[str, ...]
    partitions: int | None
    retention_ms: int | None
    retention_bytes: int | None


class ControlRequest(Struct, frozen=True, omit_defaults=True):
    """A request. `name` is the cluster to start, stop or delete. The ports are those of a watching gateway.

    `pid` is the process that watches, and `problems` are what is wrong with it (for `answer`, its answer to a ping).
    """

    verb: Literal["create", "list", "start", "stop", "delete", "watch", "answer"]
    name: str = ""
    cluster: NewCluster | None = None
    http_port: int = -1
    grpc_port: int = -1
    peer: str = ""
    """The address of the client that sent the request to a gateway; empty for a command on this machine."""
    client_id: str = ""
    pid: int = 0
    problems: tuple[str, ...] = ()


class ControlResponse(Struct, frozen=True, omit_defaults=True):
    """A response: the requested clusters, or the name of an error with its text and the field that it concerns.

    A ping has the clusters too, for watchers that do not know pings.
    """

    clusters: tuple[ClusterFacts, ...] = ()
    error: str = ""
    detail: str = ""
    field: str = ""
    is_ping: bool = False


def refusal(error: MillstreamError) -> ControlResponse:
    """Returns the response that reports a failure."""
    field = error.field if isinstance(error, FieldError) else ""
    return ControlResponse(error=error.code.name, detail=error.detail, field=field)


def checked(answer: ControlResponse) -> ControlResponse:
    """Returns the response, or raises the failure that it reports."""
    if answer.error:
        code = ErrorCode.__members__.get(answer.error, ErrorCode.UNKNOWN_SERVER_ERROR)
        raise FieldError(code, answer.detail, answer.field) if answer.field else MillstreamError(code, answer.detail)
    return answer


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yields a short alias of a socket's path. The kernel limits socket paths to about a hundred bytes."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


async def no_problems() -> Sequence[str]:
    return ()


class Control:
    """The client of the supervisor's socket at `path`.

    A broker reports that it is ready a moment before its supervisor listens. During `patience_s`, the client retries.
    """

    def __init__(self, path: Path, patience_s: float = 0.0) -> None:
        self._path = path
        self._patience_s = patience_s

    async def ask(self, request: ControlRequest) -> tuple[ClusterFacts, ...]:
        """Returns the clusters of the response. Raises a reported failure, or NO_SUPERVISOR if none listens."""
        async with self._connected(request) as (reader, _):
            async for answer in _answers(reader):
                return answer.clusters
        raise MillstreamError(
            ErrorCode.NO_SUPERVISOR, f"the supervisor at {self._path} closed the connection before it answered"
        )

    @asynccontextmanager
    async def _connected(
        self, request: ControlRequest
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await self._connection()
        try:
            writer.write(msgspec.json.encode(request) + b"\n")
            yield reader, writer
        finally:
            writer.close()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        clock = asyncio.get_running_loop().time
        until_s = clock() + self._patience_s
        while True:
            try:
                with reachable(self._path) as name:
                    connecting = asyncio.open_unix_connection(name, limit=LINE_BYTES_MAX)
                    return await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
            except (OSError, TimeoutError) as problem:
                if clock() >= until_s:
                    detail = f"no supervisor answers at {self._path}: {problem}"
                    raise MillstreamError(ErrorCode.NO_SUPERVISOR, detail) from None
            await asyncio.sleep(AGAIN_S)

    async def watch(
        self, http_port: int = -1, *, grpc_port: int = -1, problems: ProblemSource = no_problems
    ) -> AsyncIterator[tuple[ClusterFacts, ...]]:
        """Yields all clusters, now and after every change, until the supervisor ends. Raises like `ask`.

        Answers the supervisor's pings with the `problems` of this process.
        """
        request = ControlRequest("watch", http_port=http_port, grpc_port=grpc_port, pid=os.getpid())
        async with self._connected(request) as (reader, writer):
            async for answer in _answers(reader):
                if answer.is_ping:
                    writer.write(msgspec.json.encode(_answer_to_ping(await problems())) + b"\n")
                else:
                    yield answer.clusters


def _answer_to_ping(problems: Sequence[str]) -> ControlRequest:
    shown = tuple(text[:PROBLEM_CHARACTERS_MAX] for text in problems[:PROBLEMS_MAX])
    return ControlRequest("answer", problems=shown)


async def _answers(reader: asyncio.StreamReader) -> AsyncIterator[ControlResponse]:
    try:
        while line := await reader.readline():
            yield checked(msgspec.json.decode(line, type=ControlResponse))
    except OSError:
        return
