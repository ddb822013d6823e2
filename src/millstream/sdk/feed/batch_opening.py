"""Opens fetched batches: compressed ones in a worker thread, the others on the event loop."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from millstream.records.batch import each_piece
from millstream.seams.workers import Workers
from millstream.wire.framing import Buffer

HEAVY_BYTES = 4 * 1024
"""Compressed batches of at least this size are unpacked in a worker: they may expand a thousandfold."""

T = TypeVar("T")


def is_heavy(stored: Buffer) -> bool:
    """True if opening these batches could block the event loop for long."""
    if len(stored) < HEAVY_BYTES:
        return False
    return any(piece.is_packed for piece in each_piece(memoryview(stored), 0, size_bytes=len(stored)))


async def opened(workers: Workers, stored: Buffer, opens: Callable[[Buffer], T]) -> T:
    """Call `opens` on whole batches: in a worker if they are heavy, otherwise on the event loop."""
    return await workers.run(partial(opens, stored)) if is_heavy(stored) else opens(stored)
