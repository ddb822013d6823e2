"""A catalog that can be watched, and made to fail at a moment of the test's choosing."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from uuid import UUID

from builders.partitions import Site
from millstream.catalog.catalog import Topic
from millstream.catalog.memory import MemoryCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.entropy import SystemEntropy


class WatchedCatalog(MemoryCatalog):
    """A catalog that says when it is about to change and when it has; one call can be made to fail at either time."""

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

    async def change_settings(self, topic_id: UUID, settings: Mapping[str, str]) -> None:
        await self._around("change_settings", super().change_settings(topic_id, settings))

    async def begin_growth(self, topic_id: UUID, replicas: Sequence[Sequence[int]]) -> None:
        await self._around("begin_growth", super().begin_growth(topic_id, replicas))

    async def finish_growth(self, topic_id: UUID) -> None:
        await self._around("finish_growth", super().finish_growth(topic_id))

    async def abandon_growth(self, topic_id: UUID) -> None:
        await self._around("abandon_growth", super().abandon_growth(topic_id))


def watched_site() -> tuple[Site, WatchedCatalog]:
    site = Site()
    catalog = WatchedCatalog(site)
    site.catalog = catalog
    return site, catalog
