"""Opens the partitions of a broker at its start, and creates and deletes the logs of topics.

A start checks everything before it changes anything. A refused start leaves catalog and data unchanged.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from millstream.catalog.catalog import Catalog, Placement, Topic, TopicState
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, TopicId
from millstream.model.names import PartitionKey
from millstream.partition import derived_state
from millstream.seams.workers import Workers
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.recovery.recovery_report import report_recovered
from millstream.storage.store import LogStore
from millstream.topics.settings import TopicSettings

_log = logging.getLogger(__name__)

_AT_ONCE = 16
"""Logs that are created or removed concurrently: enough to keep a disk busy, few enough to leave workers for others."""

_LOADED_SIDE_BY_SIDE = 2
"""Workers that load the state of logs. More would only wait for the interpreter lock."""


class OpenedPartition(NamedTuple):
    """One partition with everything that is needed to serve it. `derived` is None if its log could not be read."""

    topic: Topic
    placement: Placement
    log: Log
    derived: derived_state.DerivedState | None


class StartedPartitions(NamedTuple):
    """The catalog's topics and placements after interrupted changes were finished, and this broker's partitions."""

    topics: list[Topic]
    placements: list[Placement]
    """The placements of all partitions in the cluster."""
    held: list[OpenedPartition]


def keys_of(topic: Topic) -> list[PartitionKey]:
    """Return the keys of all partitions that may have a log, including those that are being added."""
    return [PartitionKey(topic.topic_id, number) for number in range(max(topic.partitions, topic.growing_to))]


def log_settings(settings: TopicSettings) -> LogSettings:
    segment_ms = settings.segment_ms
    if settings.compact:  # Only closed segments are compacted.
        segment_ms = min(segment_ms, settings.max_compaction_lag_ms)
    return LogSettings(
        segment_bytes=settings.segment_bytes,
        segment_ms=segment_ms,
        retention_ms=settings.retention_ms,
        retention_bytes=settings.retention_bytes,
        delete=settings.delete,
        compact=settings.compact,
        delete_retention_ms=settings.delete_retention_ms,
        min_compaction_lag_ms=settings.min_compaction_lag_ms,
        max_compaction_lag_ms=settings.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
    )


async def create_logs(store: LogStore, topic: Topic, settings: TopicSettings) -> list[Log]:
    """Create the missing logs of a topic and return all of them, by number."""
    wanted = log_settings(settings)

    async def create(key: PartitionKey) -> None:
        if store.get(key) is None:
            await store.create(key, wanted, topic.name)

    await _some_at_a_time(create(key) for key in keys_of(topic))
    logs = []
    for key in keys_of(topic):
        log = store.get(key)
        assert log is not None, "the log existed or was just created"
        logs.append(log)
    return logs


async def erase(catalog: Catalog, store: LogStore, topic: Topic) -> None:
    """Mark a topic as deleted in the catalog, remove its logs, then remove its row. May be repeated."""
    try:
        await catalog.delete_topic(topic.topic_id)
    except MillstreamError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_ID:
            raise
    await remove_logs(store, keys_of(topic))
    await catalog.forget_topic(topic.topic_id)


async def remove_logs(store: LogStore, keys: Iterable[PartitionKey]) -> None:
    """Remove those of the logs that exist."""
    await _some_at_a_time(store.delete(key) for key in keys if store.get(key) is not None)


async def _some_at_a_time(jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all jobs, a few concurrently. Raises the first failure once the jobs beside it have ended."""
    waiting = list(jobs)
    try:
        while waiting:
            now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            results = await asyncio.gather(*now, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
    finally:
        for job in waiting:
            job.close()


class PartitionStartup:
    """The start of a broker. It compares catalog and store, repairs the effects of a crash, and refuses other
    differences."""

    def __init__(
        self,
        catalog: Catalog,
        store: LogStore,
        workers: Workers,
        node_id: BrokerId,
        settings_of: Callable[[Topic], TopicSettings],
        limits: derived_state.ProducerLimits,
        now_ms: int,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._workers = workers
        self._node_id = node_id
        self._settings_of = settings_of
        self._limits = limits
        self._now_ms = now_ms

    async def run(self) -> StartedPartitions:
        """Open every replica of this broker, by topic and partition number.

        A new leader epoch begins for each partition that this broker leads.
        """
        topics = {topic.topic_id: topic for topic in await self._catalog.topics()}
        names = {topic.topic_id: topic.name for topic in topics.values()}
        self._name_logs(names)
        placements = {placement.key: placement for placement in await self._catalog.placements()}
        mine = [placement for placement in placements.values() if self._node_id in placement.replicas]
        self._check_logs(topics.values(), mine)
        derived = await self._load([key for key in (placement.key for placement in mine) if self._store.get(key)])
        newer = self._quarantine_newer_epochs(mine, derived, names)
        topics = await self._finish_interrupted_changes(topics.values())
        begun = await self._catalog.begin_leadership(self._node_id, without=newer)
        placements |= {placement.key: placement for placement in begun}
        settings = {topic_id: log_settings(self._settings_of(topic)) for topic_id, topic in topics.items()}
        opened = []
        for placement in placements.values():
            topic, log = topics.get(placement.key.topic_id), self._store.get(placement.key)
            if topic is not None and log is not None and self._node_id in placement.replicas:
                log.configure(settings[topic.topic_id])
                found = derived.get(placement.key, derived_state.nothing(self._limits))
                if placement.key in newer:
                    found = derived_state.nothing(self._limits)._replace(offset=log.end_offset)
                opened.append(OpenedPartition(topic, placement, log, found))
        return StartedPartitions(list(topics.values()), list(placements.values()), opened)

    def _name_logs(self, names: Mapping[TopicId, str]) -> None:
        """Name each log by its topic, and report the recovery of the logs."""
        for key, log in self._store.logs():
            log.label.named(names.get(key.topic_id, ""))
        report_recovered(self._store.take_recovered(), names)

    def _check_logs(self, topics: Iterable[Topic], mine: Iterable[Placement]) -> None:
        known = {key for topic in topics for key in keys_of(topic)}
        stored = self._store.keys()
        strange = sorted(str(key.topic_id) for key in stored if key not in known)
        if strange:
            raise MillstreamError(
                ErrorCode.CATALOG_REFUSED,
                f"{len(strange)} logs belong to topics that the catalog does not know, such as {strange[0]}: "
                "the catalog belongs to other data or is an older copy; restore the newest catalog",
            )
        ready = {topic.topic_id: topic for topic in topics if topic.state is TopicState.READY}
        lost = [
            placement.key
            for placement in mine
            if (topic := ready.get(placement.key.topic_id)) is not None
            and placement.key.partition < topic.partitions
            and self._store.get(placement.key) is None
        ]
        if lost:
            raise MillstreamError(
                ErrorCode.DATA_DIRECTORY_MISSING,
                f"{len(lost)} partitions have no log, such as "
                f"{ready[lost[0].topic_id].name}-{lost[0].partition} (topic {lost[0].topic_id}): "
                "restore their data directory, or delete the topics' rows from the catalog (and the row of its table "
                "integrity) to give up the data",
            )

    async def _load(self, keys: list[PartitionKey]) -> Mapping[PartitionKey, derived_state.DerivedState | None]:
        """Load the state of each log. It is None if the disk fails, so that the other partitions can be served."""

        def load_some(some: list[PartitionKey]) -> list[tuple[PartitionKey, derived_state.DerivedState | None]]:
            return [(key, self._load_one(key)) for key in some]

        shares = [keys[first::_LOADED_SIDE_BY_SIDE] for first in range(_LOADED_SIDE_BY_SIDE)]
        jobs = [self._workers.run(partial(load_some, share)) for share in shares]
        return dict(pair for pairs in await asyncio.gather(*jobs) for pair in pairs)

    def _load_one(self, key: PartitionKey) -> derived_state.DerivedState | None:
        log = self._store.get(key)
        assert log is not None, "only existing logs are loaded"
        try:
            return derived_state.load(log, self._now_ms, self._limits)
        except OSError as error:
            _log.error("log not readable", extra={**log.label.fields, "error": str(error)})
            return None

    def _quarantine_newer_epochs(
        self,
        mine: Iterable[Placement],
        derived: Mapping[PartitionKey, derived_state.DerivedState | None],
        names: Mapping[Any, str],
    ) -> dict[PartitionKey, None]:
        """Quarantine each log that has a newer leader epoch than the catalog, and return their keys.

        This runs before new epochs begin, and these partitions begin none. Otherwise repeated starts would raise the
        epochs of the catalog until the log is accepted.
        """
        newer: dict[PartitionKey, None] = {}
        for placement in mine:
            found, log = derived.get(placement.key), self._store.get(placement.key)
            if found is not None and log is not None and found.epochs.latest > placement.leader_epoch:
                newer[placement.key] = None
                log.quarantine(
                    f"the log of {names[placement.key.topic_id]}-{placement.key.partition} has leader epoch "
                    f"{found.epochs.latest}, but the catalog has {placement.leader_epoch}: a batch of the log is "
                    "damaged, or the catalog is an older copy; restore the log or the newest catalog"
                )
        return newer

    async def _finish_interrupted_changes(self, topics: Iterable[Topic]) -> dict[TopicId, Topic]:
        """Finish changes that a crash has interrupted, and return the ready topics with all their partitions."""
        ready = {}
        for topic in topics:
            if topic.state is TopicState.DELETING:
                await erase(self._catalog, self._store, topic)
                continue
            if topic.state is TopicState.CREATING:
                await create_logs(self._store, topic, self._settings_of(topic))
                await self._catalog.set_ready(topic.topic_id)
            elif topic.growing_to:
                await create_logs(self._store, topic, self._settings_of(topic))
                await self._catalog.finish_growth(topic.topic_id)
            partitions = topic.growing_to or topic.partitions
            ready[topic.topic_id] = replace(topic, partitions=partitions, state=TopicState.READY, growing_to=0)
        return ready
