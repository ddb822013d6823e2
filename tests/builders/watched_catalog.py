"""Provides catalogs that record their changes and fail at a chosen point."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from builders.partitions import Site
from millstream.catalog.catalog import Placement, Topic
from millstream.catalog.memory import MemoryCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, TopicId
from millstream.seams.entropy import SystemEntropy


class WatchedCatalog(MemoryCatalog):
    """A catalog that calls `watch` before and after each change; one change can be made to fail before or after it."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.clock, SystemEntropy())
        self.watch: Callable[[], None] | None = None
        self.fails: tuple[str, bool] | None = None
        self.stays_away = False
        self.is_away = False

    async def _around(self, call: str, work: Coroutine[Any, Any, None]) -> None:
        if self.is_away or self.fails == (call, False):
            work.close()
            self._fail()
        self._look()
        await work
        self._look()
        if self.fails == (call, True):
            self._fail()

    def _look(self) -> None:
        if self.watch is not None:
            self.watch()

    def _fail(self) -> None:
        self.fails = None
        self.is_away |= self.stays_away
        raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "the catalog is away")

    async def topics(self) -> list[Topic]:
        if self.is_away:
            self._fail()
        return await super().topics()

    async def change_settings(self, topic_id: TopicId, settings: Mapping[str, str]) -> None:
        await self._around("change_settings", super().change_settings(topic_id, settings))

    async def begin_growth(self, topic_id: TopicId, replicas: Sequence[Sequence[BrokerId]]) -> None:
        await self._around("begin_growth", super().begin_growth(topic_id, replicas))

    async def finish_growth(self, topic_id: TopicId) -> None:
        await self._around("finish_growth", super().finish_growth(topic_id))

    async def abandon_growth(self, topic_id: TopicId) -> None:
        await self._around("abandon_growth", super().abandon_growth(topic_id))


def watched_site() -> tuple[Site, WatchedCatalog]:
    site = Site()
    catalog = WatchedCatalog(site)
    site.catalog = catalog
    return site, catalog


class FailingCatalog(MemoryCatalog):
    """A catalog of which one call fails, before or after its effect."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.clock, SystemEntropy())
        self.fails: tuple[str, bool] | None = None

    async def _mood(self, call: str, done: bool) -> None:
        if self.fails == (call, done):
            self.fails = None
            raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "the catalog is away")

    async def create_topic(self, name: str, partitions: int, settings: Mapping[str, str], replicas: Any) -> Topic:
        await self._mood("create_topic", False)
        topic = await super().create_topic(name, partitions, settings, replicas)
        await self._mood("create_topic", True)
        return topic

    async def set_ready(self, topic_id: TopicId) -> None:
        await self._mood("set_ready", False)
        await super().set_ready(topic_id)
        await self._mood("set_ready", True)

    async def delete_topic(self, topic_id: TopicId) -> None:
        await self._mood("delete_topic", False)
        await super().delete_topic(topic_id)
        await self._mood("delete_topic", True)

    async def forget_topic(self, topic_id: TopicId) -> None:
        await self._mood("forget_topic", False)
        await super().forget_topic(topic_id)
        await self._mood("forget_topic", True)

    async def change_placement(self, changed: Placement) -> Placement | None:
        await self._mood("change_placement", False)
        stored = await super().change_placement(changed)
        await self._mood("change_placement", True)
        return stored
