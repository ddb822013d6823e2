"""Selects the partitions of a consumer without a group: the configured ones, or all partitions of its topics.

The topics are a list, or all topics whose names match a pattern.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from millstream.model.errors import MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.fetcher import Fetcher
from millstream.sdk.consuming.options import ConsumerEngineSettings
from millstream.sdk.consuming.partition_source import Change
from millstream.sdk.consuming.start_positions import ADDED_FROM
from millstream.sdk.consuming.topic_pattern import TopicPattern, every_topic
from millstream.sdk.single_flight import SingleFlight

LOOK_AGAIN_S = 60.0
"""The interval at which the consumer looks for partitions that were added to its topics."""
LOOK_FOR_MISSING_S = 5.0
"""The interval at which it looks for topics that were deleted and may be created again."""

_TIMEOUT_S = 30.0


class StandaloneSource:
    def __init__(
        self, asking: RetryingCaller, reading: Fetcher, settings: ConsumerEngineSettings, *, changed: Callable[[], None]
    ) -> None:
        """Prepare the source; `changed` is called when a background lookup has ended."""
        self._asking = asking
        self._reading = reading
        self._topics = settings.topics
        """The topics that are read; with a pattern, those that matched at the last lookup."""
        self._pattern = settings.pattern
        self._topic_ids: dict[str, TopicId] = {}
        """The topic ids that were found when the consumer started."""
        self._partitions = settings.partitions
        self._start = settings.start
        self._stop = settings.stop
        self._loop = asyncio.get_running_loop()
        self._looking = SingleFlight(self._look, "lookup of new partitions", changed)
        self._looked_s = 0.0
        self._look_again_s = 0.0
        self._gone: list[TopicPartition] = []
        """Partitions of topics that were deleted or recreated, which are still read; with a pattern only."""
        self._recreated: dict[str, tuple[TopicId, Sequence[int]]] = {}
        """Topics that the last lookup found under another id: the new id and the partitions."""

    async def start(self, timeout_s: float) -> None:
        """Look up start and stop offsets; raises UNKNOWN_TOPIC_OR_PARTITION for a missing topic or partition."""
        deadline = Deadline(timeout_s)
        self._topic_ids.clear()
        places = await self._places(deadline)
        starts = await self._start.find(self._asking, places, deadline)
        stops = {} if self._stop is None else await self._stop.find(self._asking, places, deadline)
        for where in places:
            self._reading.take(where, starts[where], self._topic_ids[where.topic], stops.get(where))
        self._looked_s = self._loop.time()
        self._look_again_s = self._looked_s + LOOK_AGAIN_S

    async def _places(self, deadline: Deadline) -> list[TopicPartition]:
        if self._pattern is not None:
            return await self._matching_places(self._pattern, deadline)
        await self._asking.retrying(partial(self._asking.cluster.topics, self._topics, deadline), deadline)
        places = []
        for topic in self._topics:
            numbers = await self._asking.retrying(partial(self._numbers, topic, deadline), deadline, topic)
            places += [TopicPartition(topic, number) for number in numbers]
        return places

    async def _matching_places(self, pattern: TopicPattern, deadline: Deadline) -> list[TopicPartition]:
        """Return the partitions of all matching topics, and note those of topics that were deleted or recreated."""
        topics = await every_topic(self._asking, deadline)
        found = {name: view for name, view in topics.items() if pattern.matches(name)}
        ids = {name: TopicId(view.topic_id) for name, view in found.items()}
        self._gone = [each for each in self._reading.readers if ids.get(each.topic) != self._topic_ids.get(each.topic)]
        self._topics = sorted(found)
        self._topic_ids = ids
        return [TopicPartition(name, row.number) for name in self._topics for row in found[name].partitions]

    async def _numbers(self, topic: str, deadline: Deadline) -> Sequence[int]:
        view = await self._asking.cluster.topic(topic, deadline)
        self._topic_ids.setdefault(topic, TopicId(view.topic_id))
        if self._partitions is None:
            return [row.number for row in view.partitions]
        for number in self._partitions:
            await self._asking.cluster.leader(topic, number, deadline)
        return self._partitions

    @property
    def is_changed(self) -> bool:
        return False

    async def follow(self) -> Change | None:
        """Return None: no group changes the partitions."""
        return None

    def settle(self) -> None:
        """Look for added partitions at an interval; not with configured partitions or with a stop position."""
        self._looking.accept_result()
        now_s = self._loop.time()
        if self._gone:  # Only here, because the caller has no messages of them while it polls.
            for where in self._gone:
                self._reading.release(where)
            self._gone = []
            self._look_again_s = now_s  # A recreated topic is read from its beginning.
        if self._recreated:
            self._read_recreated()
        if self._stop is None and self._reading.missing_topics:
            self._look_again_s = min(self._look_again_s, self._looked_s + LOOK_FOR_MISSING_S)
        elif not self._grows:
            return
        if now_s >= self._look_again_s:
            self._looked_s, self._look_again_s = now_s, now_s + LOOK_AGAIN_S
            self._looking.begin()

    async def _look(self) -> None:
        """Take partitions that were added, and note topics that were created again."""
        for topic in self._topics:
            self._asking.cluster.forget(topic)
        deadline = Deadline(_TIMEOUT_S)
        if self._pattern is not None:
            try:
                self._take_new(await self._matching_places(self._pattern, deadline))
            except MillstreamError:
                return  # The fetcher reports a lasting failure of the partitions that are read.
        for topic in () if self._pattern is not None else self._topics:
            try:
                view = await self._asking.cluster.topic(topic, deadline)
                numbers = await self._numbers(topic, deadline)
            except MillstreamError:
                continue  # The fetcher reports a lasting failure of the partitions that are read.
            if self._topic_ids[topic] not in (NO_TOPIC_ID, view.topic_id):
                self._recreated[topic] = TopicId(view.topic_id), numbers
                continue
            self._take_new(TopicPartition(topic, number) for number in numbers)

    def _take_new(self, places: Iterable[TopicPartition]) -> None:
        for where in places:
            if where not in self._reading.readers:
                self._reading.take(where, ADDED_FROM, self._topic_ids[where.topic])

    def _read_recreated(self) -> None:
        """Read topics that were created again from their beginning, if the old ones hold nothing up.

        Only called while the caller polls: it has then returned its positions in the old topics.
        """
        recreated, self._recreated = self._recreated, {}
        for topic, (topic_id, numbers) in recreated.items():
            if topic not in self._reading.missing_topics or self._reading.missing is not None:
                continue
            for where in [where for where in self._reading.readers if where.topic == topic]:
                self._reading.release(where)
            self._topic_ids[topic] = topic_id
            for number in numbers:
                self._reading.take(TopicPartition(topic, number), ADDED_FROM, topic_id)

    @property
    def _grows(self) -> bool:
        return self._partitions is None and self._stop is None

    @property
    def is_over(self) -> bool:
        return self._stop is not None and all(reader.is_finished for reader in self._reading.readers.values())

    @property
    def due_in_s(self) -> float | None:
        looks = self._grows or (self._stop is None and bool(self._reading.missing_topics))
        return max(0.001, self._look_again_s - self._loop.time()) if looks else None

    @property
    def calls_in_s(self) -> float | None:
        return None

    def caller_is_busy(self, change: Change | None) -> None:
        """Do nothing: without a group the caller has no time limit."""

    def caller_is_back(self) -> None:
        """Do nothing: without a group the caller has no time limit."""

    def finish(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Do nothing: without a group no offsets are committed."""

    async def close(self) -> None:
        """Stop the lookup of added partitions."""
        await self._looking.close()
