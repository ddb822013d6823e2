"""Encodes responses with many rows in slices, so that a large response does not block the event loop."""

import asyncio
from collections.abc import Iterable

from millstream.wire.messages import response_element_writer
from millstream.wire.schema_readers import Fields
from millstream.wire.schema_writers import EncodedArray

SLICE = 1_000
"""Rows that are made and encoded before the event loop runs other work."""

Group = tuple[Fields, Iterable[Fields]]
"""A row and the rows nested in it."""


async def encode_rows(api: str, version: int, path: tuple[str, ...], rows: Iterable[Fields]) -> EncodedArray:
    """Encode the rows of the array at `path`, the field names from the outermost array inwards."""
    write = response_element_writer(api, version, *path)
    out = bytearray()
    count = 0
    for count, row in enumerate(rows, 1):
        write(out, row)
        if count % SLICE == 0:
            await asyncio.sleep(0)
    return EncodedArray(count, out)


async def encode_groups(
    api: str, version: int, path: tuple[str, ...], inner: str, groups: Iterable[Group]
) -> EncodedArray:
    """Encode the rows of the array at `path`, each with its nested array `inner`."""
    write = response_element_writer(api, version, *path)
    out = bytearray()
    count = done = 0
    for fields, rows in groups:
        within = await encode_rows(api, version, (*path, inner), rows)
        write(out, {**fields, inner: within})
        count += 1
        done += 1 + within.elements
        if done >= SLICE:
            done = 0
            await asyncio.sleep(0)
    return EncodedArray(count, out)
