"""Serves HTTP on one port with uvicorn's protocol, without uvicorn's server, which wakes ten times a second.

Stopping has two steps. After `refuse`, the server accepts no new connections and closes each open connection after its
current response. `drained` waits for these responses and cuts off the connections that remain.
"""

import asyncio
import logging
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

log = logging.getLogger(__name__)

BACKLOG = 1024
KEEP_ALIVE_S = 75
"""Idle timeout of a connection. It is longer than that of usual load balancers, so that they close idle connections
first.
"""
CANCEL_S = 1.0


class _Connections(set[Any]):
    """The open connections, with an event that is set while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self.none_left = asyncio.Event()
        self.none_left.set()

    def add(self, connection: Any) -> None:
        super().add(connection)
        self.none_left.clear()

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        if not self:
            self.none_left.set()


class HttpServer:
    """Serves an ASGI application on one port."""

    def __init__(self, app: Any, protocol: type[HttpToolsProtocol] = HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._config = Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._connections = _Connections()
        self._state = ServerState()
        self._state.connections = self._connections
        self._server: asyncio.Server | None = None
        self.port = -1

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    @property
    def requests_under_way(self) -> int:
        return len(self._state.tasks)

    async def listen(self, host: str, port: int) -> None:
        """Open the port. Raises OSError if the port cannot be bound."""
        self._config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, host or None, port, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    def _connection(self) -> HttpToolsProtocol:
        return self._protocol(config=self._config, server_state=self._state, app_state={})

    def refuse(self) -> None:
        """Accept no new connections. Idle connections close now, the others after their current response."""
        if self._server is not None:
            self._server.close()
        for connection in [*self._state.connections]:
            connection.shutdown()

    async def drained(self, limit_s: float) -> None:
        """Wait until every response is sent. After `limit_s`, abort the remaining connections."""
        try:
            async with asyncio.timeout(limit_s):
                while self._state.tasks:
                    await asyncio.wait(self._state.tasks)
                await self._connections.none_left.wait()
                return
        except TimeoutError:
            pass
        if self._connections:
            log.warning(
                "requests cut off at shutdown", extra={"connections": len(self._connections), "after_s": limit_s}
            )
        for connection in [*self._connections]:
            connection.transport.abort()
        for task in (tasks := [*self._state.tasks]):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_S)
