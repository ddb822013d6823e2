"""What stands idle in a broker costs memory alone, and little of it: bytes of Python's allocator, for each."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from budgets import table
from budgets.counting import CountedBroker, run_counted
from budgets.hand_network import HandPeer
from builders.requests import request_frame
from penstock.storage.store import FlushPolicy

MANY = 200


def bytes_for_each(make: Callable[[], object]) -> float:
    """What is kept of each of many, when one was made before."""
    kept = [make()]
    gc.collect()
    tracemalloc.start()
    try:
        kept += [make() for _ in range(MANY)]
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / MANY
    finally:
        tracemalloc.stop()


def test_an_idle_connection_keeps_little_memory(tmp_path: Path) -> None:
    frame = request_frame("ApiVersions", 3, {"client_software_name": "test", "client_software_version": "1"})

    async def story(broker: CountedBroker) -> None:
        def connect() -> HandPeer:
            peer = broker.peer()
            peer.send(frame)
            assert peer.answers
            peer.answers.clear()
            return peer

        table.check(table.IDLE_CONNECTION, {table.BYTES_KEPT: bytes_for_each(connect)})

    run_counted(tmp_path, FlushPolicy.OS, story)
