"""Drives producer engines against scripted brokers, in simulated time."""

from typing import Any

from builders.sdk.scripted_broker import Scene
from millstream.sdk.producing.bulk import Receipts
from millstream.sdk.producing.chunk import Receipt
from millstream.sdk.producing.engine import ProducerEngine
from millstream.sdk.producing.options import ProducerSettings
from millstream.testing.simulated.clock import SimulatedClock


class Put:
    """Puts messages through an engine like the public producer."""

    def __init__(self, scene: Scene, *, request_timeout_s: float = 10.0, **options: Any) -> None:
        client = scene.client(request_timeout_s=request_timeout_s)
        self.engine = ProducerEngine(client._caller, SimulatedClock(scene.loop), ProducerSettings(**options))

    def __call__(self, topic: str, value: Any = None, **given: Any) -> Receipt:
        names = ("key", "headers", "time_ms", "partition", "hash", "message_id", "on_done")
        return self.engine.intake.put(topic, value, *(given.get(name) for name in names))

    def many(self, topic: str, values: list[Any], **given: Any) -> Receipts:
        columns = {"keys": None, "headers": None, "timestamps_ms": 5, "partition": None, "hashes": None, "ids": None}
        return self.engine.put_many(topic, values, **{**columns, **given})

    async def close(self, timeout_s: float) -> None:
        self.engine.close_timeout_s = timeout_s
        await self.engine.close()
