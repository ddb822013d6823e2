"""What is said on a supervisor's control socket: one JSON object a line, a request and then its answer.

The socket lies in the first data directory of `millstream serve` and is its owner's only. A connection that watches
stays open: it is told the clusters now and after every change, and so long the gateway at its other end counts as
running.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
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
"""Of one cluster."""
AGAIN_S = 0.05


class NewCluster(Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster to be made. Its log directories lie inside the cluster's own: one for all, or one for each broker."""

    name: str
    brokers: int = BROKERS_UNLESS_SAID
    log_directories: tuple[str, ...] = ()
    partitions: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None


class BrokerFacts(Struct, frozen=True):
    """`problem` says how a broker ended that should run; it is started again and again, and the last of it counts."""

    node_id: int
    host: str
    port: int
    is_running: bool
    problem: str = ""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class ClusterFacts(Struct, frozen=True):
    """A cluster as its supervisor knows it; one that is stopped stays so until it is started by name."""

    name: str
    brokers: tuple[BrokerFacts, ...]
    is_stopped: bool
    log_directories: tuple[str, ...]
    partitions: int | None
    retention_ms: int | None
    retention_bytes: int | None


class ControlRequest(Struct, frozen=True, omit_defaults=True):
    """`name` is the cluster's for start, stop and delete; the ports are those of a gateway that watches."""

    verb: Literal["create", "list", "start", "stop", "delete", "watch"]
    name: str = ""
    cluster: NewCluster | None = None
    http_port: int = -1
    grpc_port: int = -1


class ControlResponse(Struct, frozen=True, omit_defaults=True):
    """The clusters that were asked for, or the name of an error with its text and the field it speaks of."""

    clusters: tuple[ClusterFacts, ...] = ()
    error: str = ""
    detail: str = ""
    field: str = ""


def refusal(error: MillstreamError) -> ControlResponse:
    """The answer that tells a failure."""
    field = error.field if isinstance(error, FieldError) else ""
    return ControlResponse(error=error.code.name, detail=error.detail, field=field)


def checked(answer: ControlResponse) -> ControlResponse:
    """The answer; raises the failure that it tells."""
    if answer.error:
        code = ErrorCode.__members__.get(answer.error, ErrorCode.UNKNOWN_SERVER_ERROR)
        raise FieldError(code, answer.detail, answer.field) if answer.field else MillstreamError(code, answer.detail)
    return answer


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Another name of a socket's path: the kernel takes some hundred bytes, and data directories may be longer."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class Control:
    """The other end: asks the supervisor behind the socket at `path`.

    A broker is ready a moment before its supervisor is: whoever may come that early has `patience_s`.
    """

    def __init__(self, path: Path, patience_s: float = 0.0) -> None:
        self._path = path
        self._patience_s = patience_s

    async def ask(self, request: ControlRequest) -> tuple[ClusterFacts, ...]:
        """What it answers. Raises the failure it tells, or NO_SUPERVISOR when nobody listens there."""
        async with self._connected(request) as answers:
            async for answer in answers:
                return answer
        raise MillstreamError(ErrorCode.NO_SUPERVISOR, f"the supervisor at {self._path} ended before it answered")

    @asynccontextmanager
    async def _connected(self, request: ControlRequest) -> AsyncIterator[AsyncIterator[tuple[ClusterFacts, ...]]]:
        reader, writer = await self._connection()
        try:
            writer.write(msgspec.json.encode(request) + b"\n")
            yield _answers(reader)
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

    async def watch(self, http_port: int, grpc_port: int) -> AsyncIterator[tuple[ClusterFacts, ...]]:
        """All clusters, now and after every change, until the supervisor ends; raises as `ask`."""
        async with self._connected(ControlRequest("watch", http_port=http_port, grpc_port=grpc_port)) as answers:
            async for answer in answers:
                yield answer


async def _answers(reader: asyncio.StreamReader) -> AsyncIterator[tuple[ClusterFacts, ...]]:
    try:
        while line := await reader.readline():
            yield checked(msgspec.json.decode(line, type=ControlResponse)).clusters
    except OSError:
        return
