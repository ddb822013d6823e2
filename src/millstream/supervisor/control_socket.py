"""The supervisor's control socket: the owner of the data directory may ask for clusters here, and nobody else.

Requests and connections are bounded. One that cannot be read is answered as such, and its connection ends.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.control_protocol import ClusterFacts, ControlRequest, ControlResponse, reachable, refusal

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
REQUEST_BYTES_MAX = 64 * 1024
OWNER_ONLY = 0o600


class ControlSocket:
    """Answers requests with `serve`, and tells those that watch what `facts` says whenever `tell` is called."""

    def __init__(
        self,
        path: Path,
        serve: Callable[[ControlRequest], Awaitable[tuple[ClusterFacts, ...]]],
        facts: Callable[[], tuple[ClusterFacts, ...]],
        gateways_changed: Callable[[list[ControlRequest]], None],
    ) -> None:
        self._path = path
        self._serve = serve
        self._facts = facts
        self._gateways_changed = gateways_changed
        self._server: asyncio.Server | None = None
        self._watching: dict[asyncio.StreamWriter, ControlRequest] = {}
        self._connections: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Listen; OSError when there can be no socket. What a killed process has left there is replaced."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Before there is a name for it, so that nobody else can connect even for a moment.
            os.fchmod(listening.fileno(), OWNER_ONLY)
            with suppress(FileNotFoundError):
                self._path.unlink()
            with reachable(self._path) as name:
                listening.bind(name)
            self._server = await asyncio.start_unix_server(self._connected, sock=listening, limit=REQUEST_BYTES_MAX)
        except BaseException:
            listening.close()
            raise

    def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server is None:
            return
        self._server.close()
        for writer in [*self._connections]:
            writer.transport.abort()
        with suppress(OSError):
            self._path.unlink()

    def tell(self) -> None:
        """Tell those that watch what there is now."""
        line = msgspec.json.encode(ControlResponse(self._facts())) + b"\n"
        for writer in self._watching:
            writer.write(line)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            if len(self._connections) <= CONNECTIONS_MAX:
                await self._converse(reader, writer)
        except (OSError, ValueError):
            pass  # It went away, or sent a line without an end.
        finally:
            self._connections.discard(writer)
            if self._watching.pop(writer, None) is not None:
                self._gateways_changed([*self._watching.values()])
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            try:
                request = msgspec.json.decode(line, type=ControlRequest)
            except msgspec.DecodeError as problem:
                writer.write(_line(refusal(MillstreamError(ErrorCode.INVALID_REQUEST, str(problem)))))
                return
            if request.verb == "watch":
                self._watching[writer] = request
                self._gateways_changed([*self._watching.values()])
                writer.write(_line(ControlResponse(self._facts())))
            else:
                writer.write(_line(await self._answer(request)))

    async def _answer(self, request: ControlRequest) -> ControlResponse:
        try:
            return ControlResponse(await self._serve(request))
        except MillstreamError as error:
            return refusal(error)
        except Exception:
            log.exception("a request to the supervisor failed", extra={"verb": request.verb})
            return refusal(MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR))


def _line(answer: ControlResponse) -> bytes:
    return msgspec.json.encode(answer) + b"\n"
