"""HTTP on one port: uvicorn's protocol over an ASGI app, without the server around it, which wakes ten times a second.

Stopping goes in two steps: `refuse` lets nobody new in and lets connections end with the answer they wait for;
`drained` waits for that, and cuts off what is left.
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
"""How long a connection may be idle: longer than load balancers keep theirs, so that it is they who end them."""
CANCEL_S = 1.0


class _Connections(set[Any]):
    """Those that are open, and word of when there are none."""

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
    """Serves `app`."""

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
        """Open the port; OSError when it cannot be had."""
        self._config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, host or None, port, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    def _connection(self) -> HttpToolsProtocol:
        return self._protocol(config=self._config, server_state=self._state, app_state={})

    def refuse(self) -> None:
        """Let nobody new in; connections without a request under way end now, the others with their answer."""
        if self._server is not None:
            self._server.close()
        for connection in [*self._state.connections]:
            connection.shutdown()

    async def drained(self, limit_s: float) -> None:
        """Wait until every answer has left, and cut off what has not by then."""
        try:
            async with asyncio.timeout(limit_s):
                while self._state.tasks:
                    await asyncio.wait(self._state.tasks)
                await self._connections.none_left.wait()
                return
        except TimeoutError:
            pass
        if self._connections:
            log.warning("requests were cut off", extra={"connections": len(self._connections), "after_s": limit_s})
        for connection in [*self._connections]:
            connection.transport.abort()
        for task in (tasks := [*self._state.tasks]):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_S)
