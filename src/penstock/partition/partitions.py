"""The partitions this broker serves, and the topics they belong to.

Memory follows the catalog: a topic is served once the catalog has it as ready, and no longer once the catalog has it
as deleting. Each change is carried through by a task of its own, so a client that goes away in the middle leaves
nothing half done. Changes of one name happen one after another, those of different names beside one another.

What a crash leaves is put right by `open` (the states are the catalog's, see `penstock.catalog.catalog`): a topic
that was being created gets the logs it lacks, one that was being deleted loses those it has left. What no crash can
explain is refused and left alone: a ready topic without its log (a data directory is missing), a log without its topic
or ahead of its epoch (the catalog is another one, or an older copy).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Self, TypeVar
from uuid import UUID

from penstock.catalog.catalog import Catalog, Topic, TopicState, first_placement
from penstock.model.clock import Clock
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.limits import PARTITIONS_PER_TOPIC_MAX
from penstock.model.names import NO_TOPIC_ID, check_new_topic_name, check_topic_name
from penstock.model.workers import Workers
from penstock.partition import settings as topic_settings
from penstock.partition import state
from penstock.partition.opening import Opened, Opening, create_logs, erase
from penstock.partition.partition import Partition
from penstock.partition.producers import ProducerBudget
from penstock.partition.settings import TopicSettings
from penstock.partition.state import ProducerLimits
from penstock.partition.upkeep import INTERVAL_S, Upkeep
from penstock.storage.store import Store

T = TypeVar("T")

_log = logging.getLogger(__name__)

PARTITIONS_MAX = 50_000
"""So many partitions a broker serves at most: each costs memory and a directory, and clients can make them."""


class Partitions:
    """Find, create and delete. `version` changes whenever a topic or a leadership has changed."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        *,
        clock: Clock,
        workers: Workers,
        node_id: int,
        defaults: Mapping[str, str] | None = None,
        limits: ProducerLimits | None = None,
        partitions_max: int = PARTITIONS_MAX,
        upkeep_s: float = INTERVAL_S,
    ) -> None:
        self.version = 0
        self.on_change: list[Callable[[Sequence[str]], None]] = []
        """Called whenever `version` has changed, with the names of the topics that are gone."""
        self.defaults: Mapping[str, str] = topic_settings.check(defaults or {})
        self.node_id = node_id
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._workers = workers
        self._limits = limits or ProducerLimits()
        self._partitions_max = partitions_max
        self._budget = ProducerBudget()
        self._topics: dict[str, Topic] = {}
        self._by_name: dict[str, tuple[Partition, ...]] = {}
        self._by_id: dict[UUID, tuple[Partition, ...]] = {}
        self._changes: dict[str, asyncio.Task[Any]] = {}
        self._leftovers: dict[UUID, Topic] = {}
        self._upkeep = Upkeep(self, clock, upkeep_s)
        self._reserved = 0
        self._closing = False

    @classmethod
    async def open(
        cls,
        catalog: Catalog,
        store: Store,
        *,
        clock: Clock,
        workers: Workers,
        node_id: int,
        defaults: Mapping[str, str] | None = None,
        limits: ProducerLimits | None = None,
        partitions_max: int = PARTITIONS_MAX,
        upkeep_s: float = INTERVAL_S,
    ) -> Self:
        """Serve every partition that the catalog says this broker leads; the catalog and the store must be open.

        `defaults` are topic settings for topics that do not set them. Raises CATALOG_REFUSED or
        DATA_DIRECTORY_MISSING when catalog and data do not fit, INVALID_CONFIG when a default is bad.
        """
        self = cls(
            catalog,
            store,
            clock=clock,
            workers=workers,
            node_id=node_id,
            defaults=defaults,
            limits=limits,
            partitions_max=partitions_max,
            upkeep_s=upkeep_s,
        )
        opening = Opening(catalog, store, workers, node_id, self._settings_of, self._limits, self._now_ms())
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

    # Finding.

    def get(self, topic: str, number: int) -> Partition | None:
        served = self._by_name.get(topic)
        return served[number] if served is not None and 0 <= number < len(served) else None

    def get_by_id(self, topic_id: UUID, number: int) -> Partition | None:
        served = self._by_id.get(topic_id)
        return served[number] if served is not None and 0 <= number < len(served) else None

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        served = self._by_id.get(topic_id)
        return self._topics.get(served[0].topic) if served else None

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def of(self, topic: str) -> Sequence[Partition]:
        """The partitions of a topic, by number; none of an unknown one."""
        return self._by_name.get(topic, ())

    def all(self) -> list[Partition]:
        return [partition for served in self._by_name.values() for partition in served]

    @property
    def count(self) -> int:
        """How many partitions are served."""
        return sum(map(len, self._by_name.values()))

    @property
    def producers_known(self) -> int:
        return self._budget.known

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
        (check_topic_name if internal else check_new_topic_name)(name)
        if not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
            raise PenstockError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r}: {partitions} partitions; 1 to {PARTITIONS_PER_TOPIC_MAX} are possible",
            )
        if replication_factor not in (-1, 1):
            raise PenstockError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"topic {name!r}: replication factor {replication_factor} is not possible with one broker",
            )
        checked = topic_settings.check(settings or {})
        if validate_only:
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
            except PenstockError as error:
                # Somebody else was a moment quicker: their topic is the one to use, unless it is gone again.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    async def delete(self, name: str) -> Topic:
        """Delete a topic with all its messages. UNKNOWN_TOPIC_OR_PARTITION when there is none of this name.

        It is gone when this returns, for every client and after every crash; files that the disk would not remove
        are tried again later.
        """
        return await self._change(name, partial(self._delete, name))

    async def upkeep(self) -> None:
        """One round of what otherwise happens from time to time: retention, forgetting, saving, trying again."""
        await self._upkeep.round()

    async def finish_deletions(self) -> None:
        """Try again what a failing disk or catalog left of topics that are gone; used by upkeep."""
        for topic in list(self._leftovers.values()):
            if topic.name not in self._changes:
                await self._change(topic.name, partial(self._erase, topic))

    async def heal(self, partition: Partition) -> None:
        """After a failed flush the log lost its unacknowledged end: read the state anew, under a new leader epoch."""
        await self._change(partition.topic, partial(self._heal, partition))

    async def _change(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        while (busy := self._changes.get(name)) is not None:
            await asyncio.wait([busy])
        if self._closing:
            raise PenstockError(ErrorCode.SHUTTING_DOWN)
        task = asyncio.create_task(work())
        self._changes[name] = task
        task.add_done_callback(lambda _: self._changes.pop(name))
        return await asyncio.shield(task)

    def _check_room(self, name: str, partitions: int) -> None:
        if name in self._topics:
            raise PenstockError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        if self.count + self._reserved + partitions > self._partitions_max:
            raise PenstockError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {name!r}: {partitions} more partitions would make more than {self._partitions_max}",
            )

    async def _create(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        self._check_room(name, partitions)
        self._reserved += partitions
        try:
            topic = await self._define(name, partitions, settings)
            try:
                logs = await create_logs(self._store, topic, self._settings_of(topic))
                await self._catalog.set_ready(topic.topic_id)
            except BaseException:
                await self._erase(topic)
                raise
        finally:
            self._reserved -= partitions
        self._serve(
            Opened(topic, first_placement(log.key, (self.node_id,)), log, state.nothing(self._limits)) for log in logs
        )
        return self._topics[name]

    async def _define(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        replicas = [(self.node_id,)] * partitions
        try:
            return await self._catalog.create_topic(name, partitions, settings, replicas)
        except PenstockError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        # The catalog has it and memory has not: what a failure at the moment of commit, or in cleaning up, has left.
        for topic in await self._catalog.topics():
            if topic.name == name and topic.state is TopicState.CREATING:
                await erase(self._catalog, self._store, topic)
        return await self._catalog.create_topic(name, partitions, settings, replicas)

    async def _delete(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise PenstockError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        await self._mark_deleted(topic)
        del self._topics[name], self._by_id[topic.topic_id]
        served = self._by_name.pop(name)
        self._changed(deleted=(name,))
        for partition in served:
            partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._erase(topic)
        return topic

    async def _mark_deleted(self, topic: Topic) -> None:
        try:
            await self._catalog.delete_topic(topic.topic_id)
        except PenstockError:
            # It may have happened all the same, now or in an attempt before: then there is no way back.
            left = {found.topic_id: found.state for found in await self._catalog.topics()}
            if left.get(topic.topic_id, TopicState.DELETING) is not TopicState.DELETING:
                raise

    async def _erase(self, topic: Topic) -> None:
        """Remove what is left of a topic that is not served; what fails now is tried again by upkeep."""
        try:
            await erase(self._catalog, self._store, topic)
            self._leftovers.pop(topic.topic_id, None)
        except (PenstockError, OSError) as error:
            self._leftovers[topic.topic_id] = topic
            _log.warning("a deleted topic is not gone yet", extra={"topic": topic.name, "why": str(error)})

    async def _heal(self, partition: Partition) -> None:
        while partition.is_suspended:
            placement = partition.placement
            changed = await self._catalog.change_placement(placement._replace(leader_epoch=placement.leader_epoch + 1))
            if changed is None:
                partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                return
            partition.placement = changed
            cuts = partition.cuts
            load = partial(state.load, partition.log, self._now_ms(), self._limits)
            derived = await self._workers.run(load)
            if partition.cuts == cuts:
                partition.resume(derived)
                self._changed()

    def _serve(self, opened: Iterable[Opened]) -> None:
        """Take partitions into service, all of a topic at once."""
        for topic, group in groupby(opened, key=lambda one: one.topic):
            settings = self._settings_of(topic)
            served = tuple(self._partition(one, settings) for one in group)
            self._topics[topic.name] = replace(topic, state=TopicState.READY)
            self._by_name[topic.name] = self._by_id[topic.topic_id] = served
        self._changed()

    def _changed(self, deleted: Sequence[str] = ()) -> None:
        self.version += 1
        for listener in list(self.on_change):
            listener(deleted)

    def _partition(self, opened: Opened, settings: TopicSettings) -> Partition:
        return Partition(
            opened.topic.name,
            opened.log,
            opened.derived,
            settings=settings,
            placement=opened.placement,
            store=self._store,
            clock=self._clock,
            workers=self._workers,
            budget=self._budget,
            on_suspended=self._upkeep.heal_soon,
        )

    def _settings_of(self, topic: Topic) -> TopicSettings:
        return TopicSettings.of(topic.settings, self.defaults)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)
