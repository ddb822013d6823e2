"""Builds the web API as one ASGI application."""

from collections.abc import Sequence
from functools import partial

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.gateway.http.docs import Documentation
from millstream.gateway.http.endpoint import Endpoint, no_such_path
from millstream.gateway.http.openapi import document
from millstream.gateway.http.operation_table import WebOperation
from millstream.gateway.http.routes import OPERATIONS, documentation_of
from millstream.gateway.http.web_context import WebContext


def make_app(site: WebContext) -> ASGIApp:
    """Build the application from the table of operations. An unknown path gets a problem response."""
    documentation = Documentation(document(OPERATIONS))
    routes = _routes(site, [*OPERATIONS, *documentation_of(documentation)])
    app: ASGIApp = _AsSent(Router(routes, redirect_slashes=False, default=partial(no_such_path, site.traffic)))
    if site.limits.origins:
        app = CORSMiddleware(
            app,
            allow_origins=site.limits.origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Millstream-Next", "Retry-After"],
        )
    return app


class _AsSent:
    """Routes by the path as it was sent, so that an encoded slash in a name does not split the path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].decode("latin-1")
        await self._app(scope, receive, send)


def _routes(site: WebContext, operations: Sequence[WebOperation]) -> list[Route]:
    """Return one route per path, in the order of the table, which has the most frequent paths first."""
    by_path: dict[str, list[WebOperation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [Route(path, Endpoint(site, rows)) for path, rows in by_path.items()]
