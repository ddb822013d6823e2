"""Serves `/health`, `/ready` and `/metrics` for load balancers and operators.

These pages are answered before the web API sees the request, so that its limits and a drain do not affect them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from millstream import __version__
from millstream.gateway.draining import Draining
from millstream.process.findings import Finding
from millstream.process.metrics import CONTENT_TYPE, Metric, render
from millstream.process.process_stats import process_metrics

Source = Callable[[], Iterable[Metric]]


class OperatorPage(NamedTuple):
    status: int
    content_type: str
    body: bytes


class OperatorPages:
    """Wraps the ASGI application `app` and adds the three operator pages."""

    def __init__(
        self,
        app: Any,
        draining: Draining,
        metrics: Source,
        uptime_s: Callable[[], float],
        findings: Callable[[], Iterable[Finding]] = tuple,
    ) -> None:
        self._app = app
        self._draining = draining
        self._metrics = metrics
        self._uptime_s = uptime_s
        self._findings = findings
        self._pages: Mapping[str, Callable[[], OperatorPage]] = {
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._metrics_page,
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._draining.is_announced:
            send = _closing_connection(send)
        page = self._pages.get(scope["path"])
        if page is None:
            await self._app(scope, receive, send)
            return
        answer = page() if scope["method"] in ("GET", "HEAD") else _text(405, "method not allowed; use GET or HEAD")
        headers = [
            (b"content-type", answer.content_type.encode()),
            (b"content-length", b"%d" % len(answer.body)),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    def _health(self) -> OperatorPage:
        findings = [*self._findings()]
        problems = [finding.text for finding in findings if finding.is_problem]
        facts = {
            "status": "draining" if self._draining.is_announced else "degraded" if problems else "ok",
            "problems": problems,
            "warnings": [finding.text for finding in findings if not finding.is_problem],
            "version": __version__,
            "uptime_s": round(self._uptime_s(), 3),
        }
        return OperatorPage(200, "application/json", msgspec.json.encode(facts) + b"\n")

    def _ready(self) -> OperatorPage:
        if self._draining.is_announced:
            return _text(503, "draining")
        reasons = [finding.text for finding in self._findings() if finding.blocks_ready]
        return _text(503, "not ready: " + "; ".join(reasons)) if reasons else _text(200, "ready")

    def _metrics_page(self) -> OperatorPage:
        return OperatorPage(200, CONTENT_TYPE, render([*self._metrics(), *process_metrics()]))


def _closing_connection(send: Any) -> Any:
    """Wrap `send` so that each response closes its connection; the client's next request goes to another gateway."""

    async def closing(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return closing


def _text(status: int, text: str) -> OperatorPage:
    return OperatorPage(status, "text/plain; charset=utf-8", (text + "\n").encode())
