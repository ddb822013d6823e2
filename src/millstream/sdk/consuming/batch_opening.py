"""Batches that were fetched, opened where that holds nobody up."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from millstream.records.batch import each_piece
from millstream.seams.workers import Workers
from millstream.wire.framing import Buffer

HEAVY_BYTES = 4 * 1024
"""From so many on, what is compressed is unpacked in a worker: a thousand times as much may come out."""

T = TypeVar("T")


def is_heavy(stored: Buffer) -> bool:
    """Whether opening it would hold the event loop for long."""
    if len(stored) < HEAVY_BYTES:
        return False
    return any(piece.is_packed for piece in each_piece(memoryview(stored), 0, len(stored)))


async def opened(workers: Workers, stored: Buffer, opens: Callable[[Buffer], T]) -> T:
    """What `opens` makes of whole batches: in a worker if they are heavy, and otherwise at once."""
    return await workers.run(partial(opens, stored)) if is_heavy(stored) else opens(stored)
