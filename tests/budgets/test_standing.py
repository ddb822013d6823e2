"""Tests the memory of idle connections and subscriptions in a broker, in bytes of Python's allocator."""

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
    """Return the memory kept per object, after a first one was made and all are idle."""
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


def test_an_idle_watch_of_a_member_keeps_little_memory(tmp_path: Path) -> None:
    joining = {"subscribed_topic_names": ["events"], "topic_partitions": [], "rebalance_timeout_ms": 60_000}

    async def story(broker: CountedBroker) -> None:
        peer, ids, members = broker.peer(), count(), count()
        for number in range(MANY + 1):
            fields = {"group_id": "g", "member_id": f"m{number}", "member_epoch": 0, **joining}
            peer.send(request_frame("ConsumerGroupHeartbeat", 1, fields, correlation_id=next(ids)))
            await broker.turn()
        while len(peer.answers) <= MANY:
            await broker.turn()
        peer.answers.clear()

        def watch() -> None:
            fields = {"group_id": "g", "member_id": f"m{next(members)}"}
            peer.send(request_frame("WatchMember", 0, fields, correlation_id=next(ids)))
            assert len(peer.answers) == 1, "nothing changes, so no further frame comes"
            peer.answers.clear()

        table.check(table.IDLE_WATCH, {table.BYTES_KEPT: await bytes_for_each(broker, watch)})

    run_counted(tmp_path, FlushPolicy.OS, story)
