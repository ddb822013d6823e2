"""A consumer without a group reads the partitions it was told to, or all there are of its topics."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from penstock.model.errors import PenstockError
from penstock.model.names import TopicPartition
from penstock.sdk.asking import Asking
from penstock.sdk.consuming.options import EngineSettings
from penstock.sdk.consuming.reading import Reading
from penstock.sdk.consuming.source import Change
from penstock.sdk.retry import Deadline

LOOK_AGAIN_S = 60.0
"""How soon partitions that are added to a topic are noticed."""

_TIMEOUT_S = 30.0
_NEW_FROM = 0
"""Where a partition begins that came later: at its beginning, for whatever is in it came after the start."""


class Alone:
    def __init__(
        self,
        asking: Asking,
        reading: Reading,
        settings: EngineSettings,
    ) -> None:
        self._asking = asking
        self._reading = reading
        self._topics = settings.topics
        self._partitions = settings.partitions
        self._start = settings.start
        self._stop = settings.stop
        self._loop = asyncio.get_running_loop()
        self._look_again_s = 0.0

    async def start(self, timeout_s: float) -> None:
        """Find where to begin and to end; UNKNOWN_TOPIC_OR_PARTITION for what is not there."""
        deadline = Deadline(timeout_s)
        places = await self._places(deadline)
        starts = await self._start.find(self._asking, places, deadline)
        stops = {} if self._stop is None else await self._stop.find(self._asking, places, deadline)
        for where in places:
            self._reading.take(where, starts[where], stops.get(where))
        self._look_again_s = self._loop.time() + LOOK_AGAIN_S

    async def _places(self, deadline: Deadline) -> list[TopicPartition]:
        places = []
        for topic in self._topics:
            numbers = await self._asking.retrying(partial(self._numbers, topic, deadline), deadline, topic)
            places += [TopicPartition(topic, number) for number in numbers]
        return places

    async def _numbers(self, topic: str, deadline: Deadline) -> Sequence[int]:
        if self._partitions is None:
            view = await self._asking.cluster.topic(topic, deadline)
            return [row.number for row in view.partitions]
        for number in self._partitions:
            await self._asking.cluster.leader(topic, number, deadline)
        return self._partitions

    async def follow(self) -> Change | None:
        """Begin with partitions that were added to a topic; a range has those that were there when it began."""
        if self._partitions is not None or self._stop is not None or self._loop.time() < self._look_again_s:
            return None
        self._look_again_s = self._loop.time() + LOOK_AGAIN_S
        for topic in self._topics:
            self._asking.cluster.forget(topic)
        try:
            places = await self._places(Deadline(_TIMEOUT_S))
        except PenstockError:
            return None  # Whoever reads them will say so, if it matters.
        for where in places:
            if where not in self._reading.readers:
                self._reading.take(where, _NEW_FROM)
        return None

    async def settle(self) -> None:
        """Nobody keeps its position but itself."""

    @property
    def is_over(self) -> bool:
        return self._stop is not None and all(reader.is_finished for reader in self._reading.readers.values())

    @property
    def due_in_s(self) -> float | None:
        if self._partitions is not None or self._stop is not None:
            return None
        return max(0.001, self._look_again_s - self._loop.time())

    @property
    def calls_in_s(self) -> float | None:
        return None

    def caller_is_busy(self, *, in_callback: bool) -> None:
        """Nobody minds how long it takes."""

    def caller_is_back(self) -> None:
        """Nobody has waited for it."""

    def finish(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Nobody keeps its position but itself."""

    async def close(self) -> None:
        """There is nothing to leave."""
