"""Answers of many rows, made and encoded in slices so that nobody waits long for their turn."""

import asyncio
from collections.abc import Iterable

from millstream.wire.messages import response_element_writer
from millstream.wire.schema_readers import Fields
from millstream.wire.schema_writers import EncodedArray

SLICE = 1_000
"""So many rows are made and encoded before others get their turn."""

Group = tuple[Fields, Iterable[Fields]]
"""A row, and the rows within it."""


async def encode_rows(api: str, version: int, path: tuple[str, ...], rows: Iterable[Fields]) -> EncodedArray:
    """The rows of the array at `path`, names from the top down."""
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
    """The rows of the array at `path`, each with an array `inner` of its own."""
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
