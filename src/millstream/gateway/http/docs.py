"""The documentation that a gateway serves: a page to try things out, the document behind it, and the table of failures.

Everything comes from this machine: the page works where there is no internet.
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

_SAFE = {b"content-security-policy": b"default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'"}

_KEPT = {b"cache-control": b"max-age=86400"}


class Documentation:
    """The pages, for a document that does not change."""

    def __init__(self, document: dict[str, object]) -> None:
        self._document = encode(document)

    async def page(self, asked: WebRequest) -> WebResponse:
        return WebResponse(_PAGE, HTML, headers=_SAFE)

    async def document(self, asked: WebRequest) -> WebResponse:
        return WebResponse(self._document)

    async def errors(self, asked: WebRequest) -> WebResponse:
        return WebResponse(_ERRORS, HTML, headers=_SAFE)

    async def asset(self, asked: WebRequest) -> WebResponse:
        """A file of the page, which browsers may keep; RESOURCE_NOT_FOUND for what is none."""
        name: str = asked.parameters.name
        if name == "start.js":
            return WebResponse(_START, ASSETS["swagger-ui-bundle.js"])
        kind = ASSETS.get(name)
        spec = find_spec("swagger_ui")
        if kind is None or spec is None or not spec.submodule_search_locations:
            raise MillstreamError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no file {name[:100]!r}")
        path = Path(spec.submodule_search_locations[0]) / "static" / name
        return WebResponse(await asyncio.to_thread(path.read_bytes), kind, headers=_KEPT)


def _errors() -> str:
    rows = "\n".join(
        f'<tr id="{code.name}"><td><code>{code.name}</code></td><td>{code.number}</td><td>{status.http}</td>'
        f"<td>{'yes' if code.retriable else 'no'}</td><td>{escape(code.meaning)}</td></tr>"
        for code, status in ((code, STATUSES[code]) for code in ErrorCode if code is not ErrorCode.NONE)
    )
    head = "<tr><th>code</th><th>number</th><th>HTTP</th><th>try again</th><th>what it means</th></tr>"
    return f"""\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Failures of Millstream</title></head>
<body>
<h1>Failures</h1>
<p>A failure has the same code on every interface: in the web API, over gRPC, in the SDK and on the wire.</p>
<table>
{head}
{rows}
</table>
</body>
</html>
"""


_ERRORS = _errors().encode()
