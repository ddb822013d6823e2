"""Provides a wire-level client that also writes."""

from collections.abc import Iterable, Sequence
from typing import Any

from millstream.sdk.producing.bulk import PutResults
from millstream.sdk.producing.engine import ProducerEngine
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.wire_client import WireClient


class WritingClient(WireClient):
    """Writes like a producer, but over its request connections, and waits for each put."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._engines: dict[float, ProducerEngine] = {}

    async def put(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Iterable[tuple[str, bytes | None]] | None] | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        partition: int | None = None,
        message_ids: Sequence[bytes | None] | None = None,
        timeout_s: float = 30.0,
    ) -> PutResults:
        """Store the messages and return their offsets; raises UnstoredError unless all are stored in time."""
        engine = self._engines.get(timeout_s)
        if engine is None:
            engine = self._engines[timeout_s] = ProducerEngine(
                self._caller, self._clock, ProducerSettings(timeout_s=timeout_s)
            )
        return await engine.put_many(
            topic,
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=self._clock.wall_ms() if timestamps_ms is None else timestamps_ms,
            partition=partition,
            hashes=None,
            ids=message_ids,
        )
