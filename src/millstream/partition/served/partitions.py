"""Holds the replicas on this broker and creates, changes, grows and deletes topics.

Memory follows the catalog. A topic is served, and is in the cluster image, once the catalog has it as ready and until
the catalog has it as deleting. After each change in the catalog a new image is published. Each change runs in a task of
its own, so a client that disconnects cannot leave it half done. Changes of one topic run one after another, and changes
of different topics run concurrently. Names that differ only in dots and underscores count as the same topic, since only
one of them may exist.

`open` repairs the effects of a crash (for the states see `millstream.catalog.catalog`). A topic that was being created
gets its missing logs. A topic that was being deleted loses its remaining logs. A topic that was being grown gets all
its partitions (see `partition_growth`). Settings are changed in the catalog first and then in memory, so after a crash
the next start uses the new ones. Differences that no crash can cause are refused, and nothing is changed. A ready topic
without its log means that a data directory is missing. A log without its topic, or with a newer epoch, means that the
catalog belongs to other data or is an older copy.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from millstream.catalog.catalog import Catalog, Placement, Topic, TopicState, first_placement
from millstream.catalog.cluster_image import ClusterTopic, plain_name
from millstream.catalog.cluster_metadata import ClusterMetadata
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.limits import PARTITIONS_PER_BROKER_MAX
from millstream.model.names import INTERNAL_PREFIX, NO_TOPIC_ID
from millstream.partition import derived_state
from millstream.partition.derived_state import ProducerLimits
from millstream.partition.leadership import Leadership
from millstream.partition.replica import Replica
from millstream.partition.served import uncertain_commits
from millstream.partition.served.compaction_schedule import INTERVAL_S as CLEANING_INTERVAL_S
from millstream.partition.served.healing import heal
from millstream.partition.served.leadership_factory import LeadershipFactory
from millstream.partition.served.maintenance import INTERVAL_S, Maintenance
from millstream.partition.served.partition_growth import grow, settle
from millstream.partition.served.partition_registry import PartitionRegistry
from millstream.partition.served.partition_startup import (
    OpenedPartition,
    PartitionStartup,
    create_logs,
    erase,
    log_settings,
)
from millstream.partition.served.topic_rules import check_alterable, check_free, check_growth, check_new_topic
from millstream.process.client_events import log_client_event
from millstream.process.log_limiter import LogLimiter
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers
from millstream.storage.log.log import Log
from millstream.storage.store import LogStore
from millstream.topics import settings as topic_settings
from millstream.topics.settings import TopicSettings

_REFUSALS_EVERY_S = 60.0
"""Clients repeat a refused creation, so refusals are logged at most this often."""
T = TypeVar("T")

_log = logging.getLogger(__name__)


class Partitions(PartitionRegistry):
    """The partitions of this broker, with the operations that change topics."""

    def __init__(
        self,
        catalog: Catalog,
        store: LogStore,
        *,
        clock: Clock,
        workers: Workers,
        cluster: ClusterMetadata,
        defaults: Mapping[str, str] | None = None,
        limits: ProducerLimits | None = None,
        partitions_max: int = PARTITIONS_PER_BROKER_MAX,
        upkeep_s: float = INTERVAL_S,
        cleaning_s: float = CLEANING_INTERVAL_S,
        validate_records: bool = True,
    ) -> None:
        """`defaults` are the broker's defaults of topic settings. Raises INVALID_CONFIG if one is invalid."""
        super().__init__(cluster)
        self.defaults: Mapping[str, str] = topic_settings.check(defaults or {})
        self._nodes = (cluster.node_id,)  # The brokers that hold a new partition.
        self._catalog = catalog
        self.store = store
        self._clock = clock
        self._workers = workers
        self._limits = limits or ProducerLimits()
        self._partitions_max = partitions_max
        self._refusals = LogLimiter(_REFUSALS_EVERY_S)
        self._changes: dict[str, asyncio.Task[Any]] = {}
        self._leftovers: dict[TopicId, Topic] = {}
        self._unsettled: dict[TopicId, Topic] = {}
        self._upkeep = Maintenance(self, store, clock, upkeep_s, cleaning_s)
        self._leaderships = LeadershipFactory(
            store, clock, workers, self._limits, self._upkeep, validate_records=validate_records
        )
        self.budgets, self.figures = self._leaderships.budgets, self._leaderships.figures
        self.busy = self._upkeep.busy
        self._reserved = 0
        self._closing = False

    async def open(self) -> Self:
        """Open every replica that the catalog places on this broker, and serve the partitions that it leads.

        Raises CATALOG_REFUSED or DATA_DIRECTORY_MISSING if catalog and data do not match.
        """
        opening = PartitionStartup(
            self._catalog,
            self.store,
            self._workers,
            self.cluster.node_id,
            self._settings_of,
            self._limits,
            self._now_ms(),
        )
        topics, placements, held = await opening.run()
        self._serve(held)
        self.cluster.publish(self.image.catalog_loaded(topics, placements))
        self._upkeep.start()
        return self

    async def close(self) -> None:
        """Finish running changes, refuse new ones and wake all readers. The caller closes the store."""
        self._closing = True
        while self._changes:
            await asyncio.wait(list(self._changes.values()))
        await self._upkeep.stop()
        for partition in self.all():
            partition.stopped()
        for replica in self.replicas():
            replica.forget()

    # Changes

    async def create(
        self,
        name: str,
        partitions: int = 1,
        settings: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int = -1,
        internal: bool = False,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic and serve it. With `validate_only`, only check whether that is possible.

        Raises INVALID_TOPIC, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG, POLICY_VIOLATION,
        TOPIC_ALREADY_EXISTS, KAFKA_STORAGE_ERROR. Names with a reserved prefix are for `internal` topics only.
        """
        check_new_topic(name, partitions, replication_factor=replication_factor, internal=internal)
        checked = topic_settings.check(settings or {}, self.defaults)
        if validate_only:
            check_free(name, self.image.topic_like(name))
            self._check_room(name, partitions)
            return Topic(name, NO_TOPIC_ID, partitions, checked)
        return await self._change(name, partial(self._create, name, partitions, checked))

    async def ensure(self, name: str, partitions: int = 1) -> Topic:
        """Return the topic of this name and create it with default settings if necessary. Raises as `create` does."""
        while True:
            topic = self.image.topic(name)
            if topic is not None:
                return topic
            try:
                return await self.create(name, partitions)
            except MillstreamError as error:
                # Another request has just created the topic. Use that one, unless it is already deleted again.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    async def delete(self, name: str) -> Topic:
        """Delete a topic with all its messages. Raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist.

        When this returns, the topic is deleted for every client, also after a crash. Files that could not be removed
        are removed later.
        """
        return await self._change(name, partial(self._delete, name))

    async def grow(self, name: str, count: int, *, validate_only: bool = False) -> Topic:
        """Grow a topic to `count` partitions. With `validate_only`, only check whether that is possible.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, POLICY_VIOLATION, KAFKA_STORAGE_ERROR. After
        KAFKA_STORAGE_ERROR the topic is unchanged, unless a crash follows before the cleanup: see `partition_growth`.
        """
        return await self._change(name, partial(self._grow, name, count, validate_only))

    async def alter(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Change a topic's settings. `change` maps the settings that the topic has set to the new ones.

        The new settings apply to every partition when this returns. With `validate_only`, only check whether the change
        is possible. Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, POLICY_VIOLATION for an internal topic,
        KAFKA_STORAGE_ERROR, and the errors of `change`.
        """
        return await self._change(name, partial(self._alter, name, change, validate_only))

    async def upkeep(self) -> None:
        """Run one round of maintenance now."""
        await self._upkeep.round()

    async def clean(self) -> None:
        """Run one round of compaction now."""
        await self._upkeep.cleaning.round()

    async def finish_changes(self) -> None:
        """Try again to finish changes that failed because of the disk or the catalog. Maintenance calls this."""
        for left, finish in ((self._leftovers, self._erase), (self._unsettled, self._settle)):
            for topic in list(left.values()):
                if plain_name(topic.name) not in self._changes:
                    await self._change(topic.name, partial(finish, topic))

    async def heal(self, partition: Leadership) -> None:
        """Rebuild the state of a partition whose log was truncated after a failed flush, under a new leader epoch."""
        await self._change(partition.topic, partial(self._heal, partition))

    async def _change(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        key = plain_name(name)
        while (busy := self._changes.get(key)) is not None:
            await asyncio.wait([busy])
        if self._closing:
            raise MillstreamError(ErrorCode.SHUTTING_DOWN)
        task = asyncio.create_task(work())
        self._changes[key] = task
        task.add_done_callback(lambda _: self._changes.pop(key))
        return await asyncio.shield(task)

    def _existing(self, name: str) -> ClusterTopic:
        topic = self.image.topic(name)
        if topic is None:
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        return topic

    def _check_room(self, name: str, partitions: int) -> None:
        """Raise POLICY_VIOLATION if there are too many partitions. The broker's own topics are always created."""
        if name.startswith(INTERNAL_PREFIX) or self.count + self._reserved + partitions <= self._partitions_max:
            return
        error = MillstreamError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {name!r}: {partitions} more partitions would exceed partitions_max, which is "
            f"{self._partitions_max}; this broker has {self.count}. Delete topics or raise the setting",
        )
        suppressed = self._refusals.admit("partitions_max", self._clock.monotonic_s())
        if suppressed is not None:
            fields = {"topic": name, "partitions": partitions, "error": error.detail, "suppressed": suppressed}
            _log.warning("topic refused", extra=fields)
        raise error

    async def _create(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        check_free(name, self.image.topic_like(name))
        self._check_room(name, partitions)
        self._reserved += partitions
        try:
            topic = await self._define(name, partitions, settings)
            try:
                logs = await create_logs(self.store, topic, self._settings_of(topic))
                await self._catalog.set_ready(topic.topic_id)
            except BaseException:
                await self._erase(topic)
                raise
        finally:
            self._reserved -= partitions
        opened = [self._new(topic, log) for log in logs]
        self._serve(opened)
        self.cluster.publish(self.image.topic_created(topic, [each.placement for each in opened]))
        log_client_event(_log, "topic created", topic=name, partitions=partitions, settings=_as_text(settings))
        return self._existing(name)

    async def _define(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        replicas = [self._nodes] * partitions
        try:
            return await self._catalog.create_topic(name, partitions, settings, replicas)
        except MillstreamError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        # The catalog has the topic, but memory does not: an earlier creation failed at its commit or its cleanup.
        for topic in await self._catalog.topics():
            if topic.name == name and topic.state is TopicState.CREATING:
                await erase(self._catalog, self.store, topic)
        return await self._catalog.create_topic(name, partitions, settings, replicas)

    async def _delete(self, name: str) -> Topic:
        topic = self._existing(name)
        await uncertain_commits.delete_topic(self._catalog, topic.topic_id)
        self.cluster.publish(self.image.topic_deleted(topic.topic_id))
        for partition in self._take_out(topic):
            partition.deleted()
        self.figures.deleted(topic.topic_id)
        log_client_event(_log, "topic deleted", topic=name, partitions=topic.partitions)
        await self._erase(self._unsettled.pop(topic.topic_id, topic))
        return topic

    async def _erase(self, topic: Topic) -> None:
        """Remove the rest of a topic that is no longer served. If that fails, maintenance tries again."""
        try:
            await erase(self._catalog, self.store, topic)
            self._leftovers.pop(topic.topic_id, None)
        except (MillstreamError, OSError) as error:
            self._leftovers[topic.topic_id] = topic
            _log.warning("deleted topic not removed, will be retried", extra={"topic": topic.name, "error": str(error)})

    async def _alter(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str | None]], validate_only: bool
    ) -> Topic:
        topic = self._existing(name)
        check_alterable(topic)
        altered = replace(topic, settings=topic_settings.check(change(topic.settings), self.defaults))
        if validate_only or altered == topic:
            return altered
        await uncertain_commits.change_settings(self._catalog, topic.topic_id, altered.settings)
        settings = self._settings_of(altered)
        for replica in self.replicas_of(topic.topic_id, range(topic.partitions)):
            replica.log.configure(log_settings(settings))
        for partition in self.of(name):
            partition.settings_changed(settings)
        self.cluster.publish(self.image.topic_altered(topic.topic_id, altered.settings))
        before, after = _as_text(topic.settings), _as_text(altered.settings)
        log_client_event(_log, "topic altered", topic=name, settings=after, settings_before=before)
        return altered

    async def _grow(self, name: str, count: int, validate_only: bool) -> Topic:
        topic = self._existing(name)
        if topic.topic_id in self._unsettled:
            await self._settle(topic)
            topic = self._existing(name)
        check_growth(topic, count)
        added = count - topic.partitions
        self._check_room(name, added)
        if validate_only:
            return replace(topic, partitions=count)
        self._reserved += added
        try:
            logs = await grow(self._catalog, self.store, topic, count, self._nodes, self._settings_of(topic))
        except BaseException:
            await self._settle_or_later(replace(topic, growing_to=count))
            if self._existing(name).partitions != count:
                raise
        else:
            self._serve_more(topic, logs)
        finally:
            self._reserved -= added
        log_client_event(_log, "partitions added", topic=name, partitions=count, added=added)
        return self._existing(name)

    async def _settle(self, topic: Topic) -> None:
        """Make a topic consistent with the catalog after a failed growth. Raises while that is not possible."""
        served = self._existing(topic.name)
        self._serve_more(served, await settle(self._catalog, self.store, served))
        self._unsettled.pop(topic.topic_id, None)

    async def _settle_or_later(self, topic: Topic) -> None:
        self._unsettled[topic.topic_id] = topic
        try:
            await self._settle(topic)
        except (MillstreamError, OSError) as error:
            _log.warning(
                "added partitions not removed after an error, will be retried",
                extra={"topic": topic.name, "error": str(error)},
            )

    async def _heal(self, partition: Leadership) -> None:
        is_led = await heal(
            partition,
            self._catalog,
            self.cluster.node_id,
            self.placement_changed,
            workers=self._workers,
            clock=self._clock,
            limits=self._limits,
        )
        if not is_led and not partition.is_closed:
            self._resign(partition)  # The catalog no longer has the partition.

    def placement_changed(self, placement: Placement) -> None:
        """Apply a placement that the catalog has changed: begin, continue or end the leadership, and publish it.

        A placement that is not newer than the known one changes nothing.
        """
        self._apply(placement, self._lead_again)

    def _lead_again(self, replica: Replica, placement: Placement) -> Leadership:
        topic = self.image.topic_by_id(placement.key.topic_id)
        assert topic is not None, "a replica belongs to a topic of the image"
        return self._leaderships.lead(replica, placement, self._settings_of(topic))

    def _serve(self, opened: Iterable[OpenedPartition]) -> None:
        """Add the replicas of partitions, and serve those that this broker leads."""
        for topic, group in groupby(opened, key=lambda one: one.topic):
            settings = self._settings_of(topic)
            for one in group:
                replica = self._leaderships.replica(one)
                self._hold(replica)
                if one.placement.leader == self.cluster.node_id:
                    self._lead(self._leaderships.lead(replica, one.placement, settings))

    def _serve_more(self, topic: ClusterTopic, logs: Iterable[Log]) -> None:
        """Serve the new partitions of a topic and publish them."""
        if opened := [self._new(topic, log) for log in logs]:
            self._serve(opened)
            self.cluster.publish(self.image.topic_grown(topic.topic_id, [each.placement for each in opened]))

    def _new(self, topic: Topic, log: Log) -> OpenedPartition:
        return OpenedPartition(topic, first_placement(log.key, self._nodes), log, derived_state.nothing(self._limits))

    def _settings_of(self, topic: Topic) -> TopicSettings:
        return TopicSettings.of(topic.settings, self.defaults)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _as_text(settings: Mapping[str, str]) -> str:
    """Return the settings that a topic has of its own, for a log line."""
    return ",".join(f"{name}={value}" for name, value in settings.items())
