"""A consumer without a group reads the partitions it was told to, or all there are of its topics."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from uuid import UUID

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.fetcher import Fetcher
from millstream.sdk.consuming.options import ConsumerEngineSettings
from millstream.sdk.consuming.partition_source import Change
from millstream.sdk.single_flight import SingleFlight

LOOK_AGAIN_S = 60.0
"""How soon partitions that are added to a topic are noticed."""

_TIMEOUT_S = 30.0
_NEW_FROM = 0
"""Where a partition begins that came later: at its beginning, for whatever is in it came after the start."""


class StandaloneSource:
    def __init__(
        self, asking: RetryingCaller, reading: Fetcher, settings: ConsumerEngineSettings, *, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when there may be something to raise."""
        self._asking = asking
        self._reading = reading
        self._topics = settings.topics
        self._topic_ids: dict[str, UUID] = {}
        """Of the topics that it began to read."""
        self._partitions = settings.partitions
        self._start = settings.start
        self._stop = settings.stop
        self._loop = asyncio.get_running_loop()
        self._looking = SingleFlight(self._look, "look for new partitions", changed)
        self._look_again_s = 0.0

    async def start(self, timeout_s: float) -> None:
        """Find where to begin and to end; UNKNOWN_TOPIC_OR_PARTITION for what is not there."""
        deadline = Deadline(timeout_s)
        self._topic_ids.clear()
        places = await self._places(deadline)
        starts = await self._start.find(self._asking, places, deadline)
        stops = {} if self._stop is None else await self._stop.find(self._asking, places, deadline)
        for where in places:
            self._reading.take(where, starts[where], self._topic_ids[where.topic], stops.get(where))
        self._look_again_s = self._loop.time() + LOOK_AGAIN_S

    async def _places(self, deadline: Deadline) -> list[TopicPartition]:
        await self._asking.retrying(partial(self._asking.cluster.topics, self._topics, deadline), deadline)
        places = []
        for topic in self._topics:
            numbers = await self._asking.retrying(partial(self._numbers, topic, deadline), deadline, topic)
            places += [TopicPartition(topic, number) for number in numbers]
        return places

    async def _numbers(self, topic: str, deadline: Deadline) -> Sequence[int]:
        view = await self._asking.cluster.topic(topic, deadline)
        self._topic_ids.setdefault(topic, view.topic_id)
        if self._partitions is None:
            return [row.number for row in view.partitions]
        for number in self._partitions:
            await self._asking.cluster.leader(topic, number, deadline)
        return self._partitions

    @property
    def is_changed(self) -> bool:
        return False

    async def follow(self) -> Change | None:
        """Nobody else says what it reads."""
        return None

    def settle(self) -> None:
        """Look, now and then, for partitions that were added to a topic; a range has those of when it began."""
        self._looking.hear()
        if self._grows and self._loop.time() >= self._look_again_s:
            self._look_again_s = self._loop.time() + LOOK_AGAIN_S
            self._looking.begin()

    async def _look(self) -> None:
        for topic in self._topics:
            self._asking.cluster.forget(topic)
        try:
            places = await self._places(Deadline(_TIMEOUT_S))
        except MillstreamError:
            return  # Whoever reads them will say so, if it matters.
        for where in places:
            if where not in self._reading.readers:
                self._reading.take(where, _NEW_FROM, self._topic_ids[where.topic])

    @property
    def _grows(self) -> bool:
        return self._partitions is None and self._stop is None

    @property
    def is_over(self) -> bool:
        return self._stop is not None and all(reader.is_finished for reader in self._reading.readers.values())

    @property
    def due_in_s(self) -> float | None:
        return max(0.001, self._look_again_s - self._loop.time()) if self._grows else None

    @property
    def calls_in_s(self) -> float | None:
        return None

    def caller_is_busy(self, told: Change | None) -> None:
        """Nobody minds how long it takes."""

    def caller_is_back(self) -> None:
        """Nobody has waited for it."""

    def finish(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Nobody keeps its position but itself."""

    async def close(self) -> None:
        """There is nothing to leave."""
        await self._looking.close()
