"""Serves the documentation: a Swagger UI page, the OpenAPI document and the error table.

All files come from the gateway, so the page works without internet access.
"""

import asyncio
from html import escape
from importlib.util import find_spec
from pathlib import Path

from millstream.gateway.failures import STATUSES
from millstream.gateway.http.responses import WebResponse, encode
from millstream.gateway.http.web_request import WebRequest
from millstream.model.errors import ErrorCode, MillstreamError

HTML = b"text/html; charset=utf-8"

ASSETS = {
    "swagger-ui.css": b"text/css; charset=utf-8",
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
}

_PAGE = b"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Millstream web API</title>
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script src="/docs/assets/start.js"></script>
</body>
</html>
"""

_START = b"""\
SwaggerUIBundle({url: "/openapi.json", dom_id: "#api", deepLinking: true, tryItOutEnabled: true, validatorUrl: null});
"""

_SECURITY_HEADERS = {
    b"content-security-policy": b"default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'"
}

_CACHE_HEADERS = {b"cache-control": b"max-age=86400"}


class Documentation:
    """Serves the documentation pages for one OpenAPI document."""

    def __init__(self, document: dict[str, object]) -> None:
        self._document = encode(document)

    async def redirect(self, request: WebRequest) -> WebResponse:
        return WebResponse(b"", HTML, status=307, headers={b"location": b"/docs"})

    async def page(self, request: WebRequest) -> WebResponse:
        return WebResponse(_PAGE, HTML, headers=_SECURITY_HEADERS)

    async def document(self, request: WebRequest) -> WebResponse:
        return WebResponse(self._document)

    async def errors(self, request: WebRequest) -> WebResponse:
        return WebResponse(_ERRORS, HTML, headers=_SECURITY_HEADERS)

    async def asset(self, request: WebRequest) -> WebResponse:
        """Return a static file of the page, which browsers may cache. Raises RESOURCE_NOT_FOUND for an unknown name."""
        name: str = request.parameters.name
        if name == "start.js":
            return WebResponse(_START, ASSETS["swagger-ui-bundle.js"])
        kind = ASSETS.get(name)
        spec = find_spec("swagger_ui")
        if kind is None or spec is None or not spec.submodule_search_locations:
            raise MillstreamError(ErrorCode.RESOURCE_NOT_FOUND, f"file {name[:100]!r} does not exist")
        path = Path(spec.submodule_search_locations[0]) / "static" / name
        return WebResponse(await asyncio.to_thread(path.read_bytes), kind, headers=_CACHE_HEADERS)


def _errors() -> str:
    rows = "\n".join(
        f'<tr id="{code.name}"><td><code>{code.name}</code></td><td>{code.number}</td><td>{status.http}</td>'
        f"<td>{'yes' if code.retriable else 'no'}</td><td>{escape(code.meaning)}</td></tr>"
        for code, status in ((code, STATUSES[code]) for code in ErrorCode if code is not ErrorCode.NONE)
    )
    head = "<tr><th>code</th><th>number</th><th>HTTP</th><th>retriable</th><th>meaning</th></tr>"
    return f"""\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Millstream error codes</title></head>
<body>
<h1>Error codes</h1>
<p>An error has the same code on every interface: the web API, gRPC, the SDK and the wire protocol.</p>
<table>
{head}
{rows}
</table>
</body>
</html>
"""


_ERRORS = _errors().encode()
