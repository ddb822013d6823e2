"""The partitions this broker serves, and the topics they belong to.

Memory follows the catalog: a topic is served once the catalog has it as ready, and no longer once the catalog has it
as deleting. Each change is carried through by a task of its own, so a client that goes away in the middle leaves
nothing half done. Changes of one name happen one after another, those of different names beside one another; names
that differ only in dots and underscores count as one, since only one of them may exist.

What a crash leaves is put right by `open` (the states are the catalog's, see `millstream.catalog.catalog`): a topic
that was being created gets the logs it lacks, one that was being deleted loses those it has left, one that was being
given more partitions has them (see `partition_growth`). Settings are changed in the catalog first, then in memory, so a
crash in between leaves the new ones, which the next start serves. What no crash can explain is refused and left alone:
a ready topic without its log (a data directory is missing), a log without its topic or ahead of its epoch (the catalog
is another one, or an older copy).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import Any, Self, TypeVar
from uuid import UUID

from msgspec.structs import replace

from millstream.catalog.catalog import Catalog, Topic, TopicState, first_placement
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import NO_TOPIC_ID
from millstream.partition import derived_state
from millstream.partition.derived_state import ProducerLimits
from millstream.partition.partition import Partition
from millstream.partition.served.compaction_schedule import INTERVAL_S as CLEANING_INTERVAL_S
from millstream.partition.served.maintenance import INTERVAL_S, Maintenance
from millstream.partition.served.partition_growth import grow, settle
from millstream.partition.served.partition_registry import PartitionRegistry, plain_name
from millstream.partition.served.partition_startup import (
    OpenedPartition,
    PartitionStartup,
    create_logs,
    erase,
    log_settings,
)
from millstream.partition.served.topic_rules import check_alterable, check_free, check_growth, check_new_topic
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers
from millstream.storage.log.log import Log
from millstream.storage.store import LogStore
from millstream.topics import settings as topic_settings
from millstream.topics.settings import TopicSettings

T = TypeVar("T")

_log = logging.getLogger(__name__)

PARTITIONS_MAX = 50_000
"""So many partitions a broker serves at most: each costs memory and a directory, and clients can make them."""


class Partitions(PartitionRegistry):
    """Find, create, change and delete."""

    def __init__(
        self,
        catalog: Catalog,
        store: LogStore,
        *,
        clock: Clock,
        workers: Workers,
        node_id: int,
        defaults: Mapping[str, str] | None = None,
        limits: ProducerLimits | None = None,
        partitions_max: int = PARTITIONS_MAX,
        upkeep_s: float = INTERVAL_S,
        cleaning_s: float = CLEANING_INTERVAL_S,
    ) -> None:
        """`defaults` are topic settings for topics that do not set them; INVALID_CONFIG when one is bad."""
        super().__init__()
        self.defaults: Mapping[str, str] = topic_settings.check(defaults or {})
        self.node_id = node_id
        self._catalog = catalog
        self.store = store
        self._clock = clock
        self._workers = workers
        self._limits = limits or ProducerLimits()
        self._partitions_max = partitions_max
        self.budgets = derived_state.Budgets(self._limits)
        self._changes: dict[str, asyncio.Task[Any]] = {}
        self._leftovers: dict[UUID, Topic] = {}
        self._unsettled: dict[UUID, Topic] = {}
        self._upkeep = Maintenance(self, store, clock, upkeep_s, cleaning_s)
        self._reserved = 0
        self._closing = False

    async def open(self) -> Self:
        """Serve every partition that the catalog says this broker leads; the catalog and the store must be open.

        Raises CATALOG_REFUSED or DATA_DIRECTORY_MISSING when catalog and data do not fit.
        """
        opening = PartitionStartup(
            self._catalog,
            self.store,
            self._workers,
            self.node_id,
            self._settings_of,
            self._limits,
            self._now_ms(),
        )
        self._serve(await opening.run())
        self._upkeep.start()
        return self

    async def close(self) -> None:
        """Finish the changes under way, refuse new ones, wake all readers; the store is closed by whoever opened it."""
        self._closing = True
        while self._changes:
            await asyncio.wait(list(self._changes.values()))
        await self._upkeep.stop()
        for partition in self.all():
            partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def producers_known(self) -> int:
        return self.budgets.producers.known

    # Changing.

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
        """Make a topic and serve it. With `validate_only`, only tell whether that would go.

        Raises INVALID_TOPIC, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG, POLICY_VIOLATION,
        TOPIC_ALREADY_EXISTS, KAFKA_STORAGE_ERROR. Names with a reserved prefix are for `internal` topics only.
        """
        check_new_topic(name, partitions, replication_factor, internal)
        checked = topic_settings.check(settings or {}, self.defaults)
        if validate_only:
            check_free(name, self.topic_like(name))
            self._check_room(name, partitions)
            return Topic(name, NO_TOPIC_ID, partitions, checked)
        return await self._change(name, partial(self._create, name, partitions, checked))

    async def ensure(self, name: str, partitions: int = 1) -> Topic:
        """The topic of this name, made with the default settings if there is none; raises as `create` does."""
        while True:
            topic = self._topics.get(name)
            if topic is not None:
                return topic
            try:
                return await self.create(name, partitions)
            except MillstreamError as error:
                # Somebody else was a moment quicker: their topic is the one to use, unless it is gone again.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    async def delete(self, name: str) -> Topic:
        """Delete a topic with all its messages. UNKNOWN_TOPIC_OR_PARTITION when there is none of this name.

        It is gone when this returns, for every client and after every crash; files that the disk would not remove
        are tried again later.
        """
        return await self._change(name, partial(self._delete, name))

    async def grow(self, name: str, count: int, *, validate_only: bool = False) -> Topic:
        """Give a topic more partitions, `count` in all. With `validate_only`, only tell whether that would go.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, POLICY_VIOLATION, KAFKA_STORAGE_ERROR. After the last
        one the topic has what it had, but for a crash before the failure was cleaned up: see `partition_growth`.
        """
        return await self._change(name, partial(self._grow, name, count, validate_only))

    async def alter(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Change a topic's settings: `change` is given those that it has set, and gives those that it is to have.

        They hold for every partition when this returns. With `validate_only`, only tell whether that would go. Raises
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, POLICY_VIOLATION for an internal topic, KAFKA_STORAGE_ERROR, and
        whatever `change` raises.
        """
        return await self._change(name, partial(self._alter, name, change, validate_only))

    async def upkeep(self) -> None:
        """One round of what otherwise happens from time to time: retention, forgetting, saving, trying again."""
        await self._upkeep.round()

    async def clean(self) -> None:
        """One round of compaction, which otherwise happens from time to time."""
        await self._upkeep.cleaning.round()

    async def finish_changes(self) -> None:
        """Try again what a failing disk or catalog left of changes that were begun; used by upkeep."""
        for left, finish in ((self._leftovers, self._erase), (self._unsettled, self._settle)):
            for topic in list(left.values()):
                if plain_name(topic.name) not in self._changes:
                    await self._change(topic.name, partial(finish, topic))

    async def heal(self, partition: Partition) -> None:
        """After a failed flush the log lost its unacknowledged end: read the state anew, under a new leader epoch."""
        await self._change(partition.topic, partial(self._heal, partition))

    async def _change(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        lane = plain_name(name)
        while (busy := self._changes.get(lane)) is not None:
            await asyncio.wait([busy])
        if self._closing:
            raise MillstreamError(ErrorCode.SHUTTING_DOWN)
        task = asyncio.create_task(work())
        self._changes[lane] = task
        task.add_done_callback(lambda _: self._changes.pop(lane))
        return await asyncio.shield(task)

    def _existing(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _check_room(self, name: str, partitions: int) -> None:
        if self.count + self._reserved + partitions > self._partitions_max:
            raise MillstreamError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {name!r}: {partitions} more partitions would make more than {self._partitions_max}",
            )

    async def _create(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        check_free(name, self.topic_like(name))
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
        self._serve(self._new(topic, log) for log in logs)
        return self._topics[name]

    async def _define(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        replicas = [(self.node_id,)] * partitions
        try:
            return await self._catalog.create_topic(name, partitions, settings, replicas)
        except MillstreamError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        # The catalog has it and memory has not: what a failure at the moment of commit, or in cleaning up, has left.
        for topic in await self._catalog.topics():
            if topic.name == name and topic.state is TopicState.CREATING:
                await erase(self._catalog, self.store, topic)
        return await self._catalog.create_topic(name, partitions, settings, replicas)

    async def _delete(self, name: str) -> Topic:
        topic = self._existing(name)
        await self._mark_deleted(topic)
        for partition in self._take_out(topic):
            partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._erase(self._unsettled.pop(topic.topic_id, topic))
        return topic

    async def _mark_deleted(self, topic: Topic) -> None:
        try:
            await self._catalog.delete_topic(topic.topic_id)
        except MillstreamError:
            # It may have happened all the same, now or in an attempt before: then there is no way back.
            stored = await self._stored(topic)
            if stored is not None and stored.state is not TopicState.DELETING:
                raise

    async def _stored(self, topic: Topic) -> Topic | None:
        """What the catalog has of a topic: the truth after a commit that reported an error."""
        return next((found for found in await self._catalog.topics() if found.topic_id == topic.topic_id), None)

    async def _erase(self, topic: Topic) -> None:
        """Remove what is left of a topic that is not served; what fails now is tried again by upkeep."""
        try:
            await erase(self._catalog, self.store, topic)
            self._leftovers.pop(topic.topic_id, None)
        except (MillstreamError, OSError) as error:
            self._leftovers[topic.topic_id] = topic
            _log.warning("a deleted topic is not gone yet", extra={"topic": topic.name, "why": str(error)})

    async def _alter(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str | None]], validate_only: bool
    ) -> Topic:
        topic = self._existing(name)
        check_alterable(topic)
        altered = replace(topic, settings=topic_settings.check(change(topic.settings), self.defaults))
        if validate_only or altered == topic:
            return altered
        try:
            await self._catalog.change_settings(topic.topic_id, altered.settings)
        except MillstreamError:
            stored = await self._stored(topic)
            if stored is None or stored.settings != altered.settings:
                raise
        settings = self._settings_of(altered)
        for partition in self._by_name[name]:
            partition.settings = settings
            partition.log.settings = log_settings(settings)
        self._put(altered, self._by_name[name])
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
            logs = await grow(self._catalog, self.store, topic, count, (self.node_id,), self._settings_of(topic))
        except BaseException:
            await self._settle_or_later(replace(topic, growing_to=count))
            if self._topics[name].partitions != count:
                raise
        else:
            self._serve_more(topic, logs)
        finally:
            self._reserved -= added
        return self._topics[name]

    async def _settle(self, topic: Topic) -> None:
        """Bring a topic whose growth failed in step with the catalog; raises while that cannot be done."""
        served = self._existing(topic.name)
        self._serve_more(served, await settle(self._catalog, self.store, served))
        self._unsettled.pop(topic.topic_id, None)

    async def _settle_or_later(self, topic: Topic) -> None:
        self._unsettled[topic.topic_id] = topic
        try:
            await self._settle(topic)
        except (MillstreamError, OSError) as error:
            _log.warning("new partitions are not cleaned up yet", extra={"topic": topic.name, "why": str(error)})

    async def _heal(self, partition: Partition) -> None:
        while partition.is_suspended:
            placement = partition.placement
            changed = await self._catalog.change_placement(placement._replace(leader_epoch=placement.leader_epoch + 1))
            if changed is None:
                partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                return
            partition.placement = changed
            cuts = partition.cuts
            load = partial(derived_state.load, partition.log, self._now_ms(), self._limits)
            async with partition.saving:
                derived = await self._workers.run(load)
                if partition.cuts == cuts:
                    partition.resume(derived)
                    self._changed()

    def _serve(self, opened: Iterable[OpenedPartition]) -> None:
        """Take partitions into service, all of a topic at once."""
        for topic, group in groupby(opened, key=lambda one: one.topic):
            settings = self._settings_of(topic)
            served = tuple(self._partition(one, settings) for one in group)
            self._put(replace(topic, state=TopicState.READY), served)

    def _serve_more(self, topic: Topic, logs: Iterable[Log]) -> None:
        """Take new partitions of a topic into service beside those it has."""
        settings = self._settings_of(topic)
        added = tuple(self._partition(self._new(topic, log), settings) for log in logs)
        if added:
            served = (*self._by_name[topic.name], *added)
            self._put(replace(topic, partitions=len(served)), served)

    def _new(self, topic: Topic, log: Log) -> OpenedPartition:
        return OpenedPartition(
            topic, first_placement(log.key, (self.node_id,)), log, derived_state.nothing(self._limits)
        )

    def _partition(self, opened: OpenedPartition, settings: TopicSettings) -> Partition:
        return Partition(
            opened.topic.name,
            opened.log,
            opened.derived,
            settings=settings,
            placement=opened.placement,
            store=self.store,
            clock=self._clock,
            workers=self._workers,
            budget=self.budgets,
            caretaker=self._upkeep,
        )

    def _settings_of(self, topic: Topic) -> TopicSettings:
        return TopicSettings.of(topic.settings, self.defaults)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)
