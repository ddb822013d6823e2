"""Builds responses with one row per partition, in slices, so that a large request does not block the event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from millstream.wire.messages import response_element_writer, write_response
from millstream.wire.schema_readers import Fields
from millstream.wire.schema_writers import EncodedArray

SLICE = 1_000
"""Partitions that are processed before the event loop runs other work."""

LookUp = Callable[[str, Fields], Awaitable[Fields]]


async def answer_partitions(
    api: str, version: int, topics: Sequence[Fields], name_field: str, look_up: LookUp
) -> bytes:
    """Return a response with `topics` and their `partitions`; `look_up` returns the row of each requested partition."""
    write_row = response_element_writer(api, version, "topics", "partitions")
    answered: list[dict[str, Any]] = []
    done = 0
    for topic in topics:
        rows = bytearray()
        for wanted in topic["partitions"]:
            write_row(rows, await look_up(topic[name_field], wanted))
            done += 1
            if done % SLICE == 0:
                await asyncio.sleep(0)
        answered.append({name_field: topic[name_field], "partitions": EncodedArray(len(topic["partitions"]), rows)})
        if done == 0 and len(answered) % SLICE == 0:
            await asyncio.sleep(0)
    return write_response(api, version, {"topics": answered})
