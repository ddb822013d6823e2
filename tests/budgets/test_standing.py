"""What stands idle in a broker costs memory alone, and little of it: bytes of Python's allocator, for each."""

import gc
import tracemalloc
from collections.abc import Callable
from itertools import count
from pathlib import Path

from budgets import table
from budgets.counting import CountedBroker, run_counted
from budgets.hand_network import HandPeer
from builders.requests import request_frame
from builders.sdk.subscriber import wanted
from millstream.storage.store import FlushPolicy
from millstream.wire.subscribe import END

MANY = 200


async def bytes_for_each(broker: CountedBroker, make: Callable[[], object]) -> float:
    """What is kept of each of many, when one was made before and all have come to rest."""
    kept = [make()]
    await broker.turn()
    gc.collect()
    tracemalloc.start()
    try:
        kept += [make() for _ in range(MANY)]
        for _ in range(MANY):
            await broker.turn()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / MANY
    finally:
        tracemalloc.stop()


def test_an_idle_subscription_keeps_little_memory(tmp_path: Path) -> None:
    async def story(broker: CountedBroker) -> None:
        peer, ids = broker.peer(), count()

        def subscribe() -> None:
            fields = {"topics": wanted({"events": {0: END}})}
            peer.send(request_frame("Subscribe", 0, fields, correlation_id=next(ids)))
            assert peer.answers
            peer.answers.clear()

        table.check(table.IDLE_SUBSCRIPTION, {table.BYTES_KEPT: await bytes_for_each(broker, subscribe)})

    run_counted(tmp_path, FlushPolicy.OS, story)


def test_an_idle_connection_keeps_little_memory(tmp_path: Path) -> None:
    frame = request_frame("ApiVersions", 3, {"client_software_name": "test", "client_software_version": "1"})

    async def story(broker: CountedBroker) -> None:
        def connect() -> HandPeer:
            peer = broker.peer()
            peer.send(frame)
            assert peer.answers
            peer.answers.clear()
            return peer

        table.check(table.IDLE_CONNECTION, {table.BYTES_KEPT: await bytes_for_each(broker, connect)})

    run_counted(tmp_path, FlushPolicy.OS, story)
