"""Refuses requests that were meant for another host.

A web site whose name its owner lets point to this machine has its pages reach whatever listens here, as if it were the
site's own (DNS rebinding). What gives it away is the name, which the browser sends as `Host`.
"""

from collections.abc import Iterable
from typing import Any

from millstream.gateway.failures import FieldError
from millstream.gateway.http.endpoint import send_answer
from millstream.gateway.http.responses import problem_answer, problem_of
from millstream.model.errors import ErrorCode

OWN = ("localhost", "127.0.0.1", "[::1]")


class KnownHosts:
    """An ASGI application around `app`, for requests to hosts of these names or without one, which no browser sends."""

    def __init__(self, app: Any, names: Iterable[str]) -> None:
        self._app = app
        self._names = frozenset(_bracketed(name).lower().encode("latin-1", "replace") for name in names)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        for field, value in scope["headers"]:
            if field == b"host" and not self._is_known(value.lower()):
                shown = value[:255].decode("latin-1")
                text = f"this gateway is not {shown!r}; the setting allowed_hosts names what else it is called"
                error = FieldError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text, "Host")
                await send_answer(problem_answer(problem_of(error)), {}, send, with_body=scope["method"] != "HEAD")
                return
        await self._app(scope, receive, send)

    def _is_known(self, host: bytes) -> bool:
        """Whatever the port is: others may be mapped to it."""
        name, colon, port = host.rpartition(b":")
        return host in self._names or bool(colon and (port.isdigit() or not port) and name in self._names)


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name
