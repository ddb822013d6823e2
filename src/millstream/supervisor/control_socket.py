"""Serves the supervisor's control socket, through which only the owner of the data directory can manage clusters.

A child process watches through the same socket, and answers the supervisor's pings there (`supervisor.child_pings`).
The size of requests and the number of connections are limited. A malformed request gets an error response, and its
connection is closed.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.control_protocol import ClusterFacts, ControlRequest, ControlResponse, reachable, refusal
from millstream.supervisor.child_pings import ChildPings, PingedChild

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 128
"""Each broker of a local cluster and each gateway has a connection, and each running command has one."""
REQUEST_BYTES_MAX = 64 * 1024
OWNER_ONLY = 0o600


class _Watcher(NamedTuple):
    request: ControlRequest
    child: PingedChild


class ControlSocket:
    """Answers requests with `serve`. Each call of `tell` sends the result of `facts` to the watching connections."""

    def __init__(
        self,
        path: Path,
        serve: Callable[[ControlRequest], Awaitable[tuple[ClusterFacts, ...]]],
        facts: Callable[[], tuple[ClusterFacts, ...]],
        gateways_changed: Callable[[list[ControlRequest]], None],
        pings: ChildPings,
    ) -> None:
        self._path = path
        self._serve = serve
        self._facts = facts
        self._gateways_changed = gateways_changed
        self._server: asyncio.Server | None = None
        self._pings = pings
        self._watching: dict[asyncio.StreamWriter, _Watcher] = {}
        self._connections: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Starts to listen, and replaces a socket left by a killed process. Raises OSError if that is impossible."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Before the socket has a name, so that no other user can connect even for a moment.
            os.fchmod(listening.fileno(), OWNER_ONLY)
            with suppress(FileNotFoundError):
                self._path.unlink()
            with reachable(self._path) as name:
                listening.bind(name)
            self._server = await asyncio.start_unix_server(self._on_connect, sock=listening, limit=REQUEST_BYTES_MAX)
        except BaseException:
            listening.close()
            raise

    def close(self) -> None:
        """Stops listening and ends every connection."""
        if self._server is None:
            return
        self._server.close()
        for writer in [*self._connections]:
            writer.transport.abort()
        with suppress(OSError):
            self._path.unlink()

    def tell(self) -> None:
        """Sends the current clusters to the watching connections."""
        line = msgspec.json.encode(ControlResponse(self._facts())) + b"\n"
        for writer in self._watching:
            writer.write(line)

    async def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            if len(self._connections) <= CONNECTIONS_MAX:
                await self._serve_connection(reader, writer)
        except (OSError, ValueError):
            pass  # The client disconnected, or sent a line that is too long.
        finally:
            self._connections.discard(writer)
            if (watcher := self._watching.pop(writer, None)) is not None:
                self._pings.disconnected(watcher.child)
                self._report_gateways()
            writer.close()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            try:
                request = msgspec.json.decode(line, type=ControlRequest)
            except msgspec.DecodeError as problem:
                writer.write(_line(refusal(MillstreamError(ErrorCode.INVALID_REQUEST, str(problem)))))
                return
            if request.verb == "watch" and writer not in self._watching:
                self._watch(writer, request)
            elif request.verb == "answer" and writer in self._watching:
                self._watching[writer].child.answered(request.problems)
            else:
                writer.write(_line(await self._answer(request)))

    def _watch(self, writer: asyncio.StreamWriter, request: ControlRequest) -> None:
        child = self._pings.connected(request.pid, lambda: self._ping(writer))
        self._watching[writer] = _Watcher(request, child)
        self._report_gateways()
        writer.write(_line(ControlResponse(self._facts())))

    def _ping(self, writer: asyncio.StreamWriter) -> None:
        writer.write(_line(ControlResponse(self._facts(), is_ping=True)))

    def _report_gateways(self) -> None:
        self._gateways_changed([watcher.request for watcher in self._watching.values()])

    async def _answer(self, request: ControlRequest) -> ControlResponse:
        try:
            return ControlResponse(await self._serve(request))
        except MillstreamError as error:
            return refusal(error)
        except Exception:
            log.exception("control request failed", extra={"verb": request.verb})
            return refusal(MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR))


def _line(answer: ControlResponse) -> bytes:
    return msgspec.json.encode(answer) + b"\n"
