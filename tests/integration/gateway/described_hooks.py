"""Configures schemathesis: encodes NDJSON bodies, and limits the number of partitions because creating many is slow."""

from typing import Any

import schemathesis

PARTITIONS_MAX = 10_000
PARTITIONS_MADE = 10


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Send the generated text unchanged; most of it is not valid JSON."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: "schemathesis.Case[Any]", arguments: dict[str, Any]) -> None:
    """Limit valid requests for partitions to PARTITIONS_MADE."""
    body: Any = case.body
    for name in ("partitions", "total"):
        if isinstance(body, dict) and isinstance(body.get(name), int) and body[name] <= PARTITIONS_MAX:
            body[name] = min(body[name], PARTITIONS_MADE)
