"""What schemathesis has to be told: how lines of JSON are sent, and that thousands of partitions take time."""

from typing import Any

import schemathesis

PARTITIONS_MAX = 10_000
PARTITIONS_MADE = 10


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """As it was made: text, which is mostly no JSON at all."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: "schemathesis.Case[Any]", arguments: dict[str, Any]) -> None:
    """Who asks for as many partitions as there may be gets fewer."""
    body: Any = case.body
    for name in ("partitions", "total"):
        if isinstance(body, dict) and isinstance(body.get(name), int) and body[name] <= PARTITIONS_MAX:
            body[name] = min(body[name], PARTITIONS_MADE)
