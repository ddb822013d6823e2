"""Refuses requests whose Host header names an unknown host, to stop DNS rebinding.

In that attack a site points its own name at this machine, so that its pages reach local services as if they were the
site's own. The browser sends the site's name as `Host`, which reveals the attack.
"""

from collections.abc import Iterable
from typing import Any

from millstream.gateway.failures import TitledError
from millstream.gateway.http.endpoint import send_answer
from millstream.gateway.http.responses import problem_answer, problem_of
from millstream.gateway.traffic import Traffic
from millstream.model.errors import ErrorCode

OWN = ("localhost", "127.0.0.1", "[::1]")


class KnownHosts:
    """Wraps the ASGI application `app` and passes on requests to these hosts, or without a Host header.

    The protocol adds the host of an absolute request target as a Host header.

    Browsers always send the header.
    """

    def __init__(self, app: Any, names: Iterable[str], traffic: Traffic | None = None) -> None:
        """`traffic` counts the refused requests."""
        self._app = app
        self._traffic = traffic or Traffic("http")
        self._names = frozenset(_bracketed(name).lower().encode("latin-1", "replace") for name in names)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        for field, value in scope["headers"]:
            if field == b"host" and not self._is_known(value.lower()):
                shown = value[:255].decode("latin-1")
                text = f"this gateway does not serve host {shown!r}; add the name to the setting allowed_hosts"
                title = "the Host header names an unknown host"
                error = TitledError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text, "Host", title=title)
                answer = problem_answer(problem_of(error))
                self._traffic.refused(answer.status, scope["method"], scope.get("client"))
                await send_answer(answer, {}, send, with_body=scope["method"] != "HEAD")
                return
        await self._app(scope, receive, send)

    def _is_known(self, host: bytes) -> bool:
        """True if the host name is allowed. The port is ignored, because another port may be mapped to this one."""
        name, colon, port = host.rpartition(b":")
        return host in self._names or bool(colon and (port.isdigit() or not port) and name in self._names)


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name
