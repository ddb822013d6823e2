"""Tests the settings of single groups: ranges, storage, limits, and their effect on members."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from builders.groups.consumers import JOINING, SESSION_MS, Consumer, describe, request
from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.catalog.memory import MemoryCatalog
from millstream.groups import group_configs
from millstream.groups.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, GroupConfigs
from millstream.groups.responses import ConsumerHeartbeatResponse
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy

LONGER_MS = 60_000


def catalog() -> MemoryCatalog:
    return MemoryCatalog(SystemClock(), SystemEntropy())


def to(**settings: str) -> Callable[[Mapping[str, str]], Mapping[str, str | None]]:
    names = {"session": SESSION_TIMEOUT, "heartbeat": HEARTBEAT_INTERVAL}
    return lambda _: {names[name]: value for name, value in settings.items()}


class UncertainCatalog(MemoryCatalog):
    """A catalog that fails, before or after a change of a group's settings."""

    def __init__(self, *, stores: bool) -> None:
        super().__init__(SystemClock(), SystemEntropy())
        self._stores = stores

    async def change_group_settings(self, group_id: str, settings: Mapping[str, str]) -> None:
        if self._stores:
            await super().change_group_settings(group_id, settings)
        raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "the commit failed")


def test_group_settings_survive_a_restart_and_apply_to_one_group_only() -> None:
    async def story() -> None:
        store = catalog()
        configs = GroupConfigs(GroupSettings(), store)
        await configs.alter("g", to(session="50000", heartbeat="6000"), validate_only=False)
        again = GroupConfigs(GroupSettings(), store)
        await again.load()
        assert (again.session_timeout_ms("g"), again.heartbeat_interval_ms("g")) == (50_000, 6_000)
        assert (again.session_timeout_ms("h"), again.heartbeat_interval_ms("h")) == (45_000, 5_000)

    asyncio.run(story())


def test_ranges_of_group_settings_follow_the_brokers_settings() -> None:
    async def story() -> None:
        broker = GroupSettings(consumer_session_timeout_min_ms=7_000, consumer_heartbeat_interval_max_ms=50_000)
        configs = GroupConfigs(broker, catalog())
        await configs.alter("g", to(session="7000"), validate_only=False)
        assert configs.session_timeout_ms("g") == 7_000
        with pytest.raises(MillstreamError, match="7000 is not less than") as refused:
            await configs.alter("g", to(session="7000", heartbeat="7000"), validate_only=False)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        assert configs.heartbeat_interval_ms("g") == 5_000

    asyncio.run(story())


@pytest.mark.parametrize("stores", [True, False])
def test_a_failed_commit_takes_effect_exactly_if_the_catalog_has_it(stores: bool) -> None:
    async def story() -> None:
        configs = GroupConfigs(GroupSettings(), UncertainCatalog(stores=stores))
        if stores:
            await configs.alter("g", to(session="50000"), validate_only=False)
        else:
            with pytest.raises(MillstreamError, match="the commit failed"):
                await configs.alter("g", to(session="50000"), validate_only=False)
        assert configs.session_timeout_ms("g") == (50_000 if stores else 45_000)

    asyncio.run(story())


def test_the_number_of_groups_and_the_length_of_their_names_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_configs, "GROUPS_MAX", 2)

    async def story() -> None:
        configs = GroupConfigs(GroupSettings(), catalog())
        with pytest.raises(MillstreamError) as refused:
            await configs.alter("g" * 1_001, to(session="50000"), validate_only=False)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        for group_id in ("a", "b"):
            await configs.alter(group_id, to(session="50000"), validate_only=False)
        with pytest.raises(MillstreamError) as refused:
            await configs.alter("c", to(session="50000"), validate_only=False)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        await configs.alter("a", to(session="51000"), validate_only=False)
        await configs.alter("b", to(), validate_only=False)
        await configs.alter("c", to(session="50000"), validate_only=False)
        assert sorted(configs.groups) == ["a", "c"]

    asyncio.run(story())


def test_a_members_timeouts_follow_its_groups_settings_from_its_next_heartbeat_on() -> None:
    driver = Driver(topics=Topics(orders=6))
    consumer = Consumer(driver, "m")
    consumer.join()
    asyncio.run(driver.configs.alter("g", to(session=str(LONGER_MS), heartbeat="7000"), validate_only=False))
    beat = driver.ask(request("m", consumer.epoch), ConsumerHeartbeatResponse)
    assert beat.heartbeat_interval_ms == 7_000
    driver.pass_time(SESSION_MS + 1)
    assert len(describe(driver).members) == 1
    driver.pass_time(LONGER_MS - SESSION_MS)
    assert describe(driver).members == ()


def test_the_settings_of_a_group_do_not_change_other_groups() -> None:
    driver = Driver(topics=Topics(orders=6))
    asyncio.run(driver.configs.alter("other", to(heartbeat="7000"), validate_only=False))
    joined = driver.ask(request("m", 0, **JOINING), ConsumerHeartbeatResponse)
    assert joined.heartbeat_interval_ms == GroupSettings().consumer_heartbeat_interval_ms
