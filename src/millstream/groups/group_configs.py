"""Keeps the settings of single groups, which override the broker's settings for members with the consumer protocol.

They are stored in the catalog by the name of the group, whether the group exists or not. A member gets its new
heartbeat interval, and its session timeout restarts with the new value, at its next heartbeat.

Invariant: every kept setting is one of `GROUP_SETTINGS`, and was within its range when it was set.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from msgspec import Struct

from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.client_events import log_client_event

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
GROUP_SETTINGS = (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)
"""The settings that a group may have."""

GROUPS_MAX = 10_000
"""Maximum number of groups with settings of their own."""

NAME_CHARACTERS_MAX = 1_000

_NO_SETTINGS: Mapping[str, str] = {}
_log = logging.getLogger(__name__)


class SettingRange(Struct, frozen=True):
    """The smallest and the largest value of a setting."""

    low: int
    high: int


class GroupConfigStore(Protocol):
    """The part of the catalog that stores the settings of groups."""

    async def group_settings(self) -> Mapping[str, Mapping[str, str]]: ...

    async def change_group_settings(self, group_id: str, settings: Mapping[str, str]) -> None: ...


class GroupConfigs:
    def __init__(self, broker: GroupSettings, store: GroupConfigStore) -> None:
        self.broker = broker
        self.ranges: Mapping[str, SettingRange] = {
            HEARTBEAT_INTERVAL: SettingRange(
                broker.consumer_heartbeat_interval_min_ms, broker.consumer_heartbeat_interval_max_ms
            ),
            SESSION_TIMEOUT: SettingRange(
                broker.consumer_session_timeout_min_ms, broker.consumer_session_timeout_max_ms
            ),
        }
        self._store = store
        self._one_at_a_time = asyncio.Lock()
        self._own: dict[str, Mapping[str, str]] = {}

    async def load(self) -> None:
        """Reads all settings from the catalog. Raises KAFKA_STORAGE_ERROR."""
        self._own = {group_id: dict(own) for group_id, own in (await self._store.group_settings()).items()}

    @property
    def groups(self) -> Collection[str]:
        """The groups with settings of their own."""
        return self._own.keys()

    def own(self, group_id: str) -> Mapping[str, str]:
        """Returns the settings of a group that differ from the broker's."""
        return self._own.get(group_id, _NO_SETTINGS)

    def session_timeout_ms(self, group_id: str) -> int:
        return int(self.own(group_id).get(SESSION_TIMEOUT, self.broker.consumer_session_timeout_ms))

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return int(self.own(group_id).get(HEARTBEAT_INTERVAL, self.broker.consumer_heartbeat_interval_ms))

    async def alter(
        self,
        group_id: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str | None]],
        *,
        validate_only: bool,
    ) -> None:
        """Replaces the settings of a group by the result of `change`, which gets the current ones.

        Raises INVALID_CONFIG for an unknown setting or an invalid value, POLICY_VIOLATION if too many groups have
        settings, and the errors of `change` and of the catalog.
        """
        async with self._one_at_a_time:
            old = self.own(group_id)
            new = self._checked(change(old))
            if new and not old:
                self._check_room(group_id)
            if not validate_only and new != old:
                await self._save(group_id, new)

    async def _save(self, group_id: str, new: Mapping[str, str]) -> None:
        try:
            await self._store.change_group_settings(group_id, new)
        except MillstreamError:
            # The commit may have happened although it reported an error: the rows decide.
            if (await self._store.group_settings()).get(group_id, _NO_SETTINGS) != new:
                raise
        assert new.keys() <= set(GROUP_SETTINGS), "only checked settings are kept"
        if new:
            self._own[group_id] = new
        else:
            self._own.pop(group_id, None)
        settings = ",".join(f"{name}={value}" for name, value in new.items())
        log_client_event(_log, "group altered", group=group_id, settings=settings)

    def _check_room(self, group_id: str) -> None:
        if len(group_id) > NAME_CHARACTERS_MAX:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST,
                f"group {group_id[:100]!r}...: the name has {len(group_id)} characters; "
                f"a group with settings has at most {NAME_CHARACTERS_MAX}",
            )
        if len(self._own) >= GROUPS_MAX:
            raise MillstreamError(
                ErrorCode.POLICY_VIOLATION,
                f"group {group_id!r}: {GROUPS_MAX} groups have settings already; delete the settings of other groups",
            )

    def _checked(self, settings: Mapping[str, str | None]) -> dict[str, str]:
        """Returns the settings in canonical form."""
        checked = {name: str(self._number(name, value)) for name, value in settings.items()}
        session_ms = int(checked.get(SESSION_TIMEOUT, self.broker.consumer_session_timeout_ms))
        heartbeat_ms = int(checked.get(HEARTBEAT_INTERVAL, self.broker.consumer_heartbeat_interval_ms))
        if checked and heartbeat_ms >= session_ms:
            raise MillstreamError(
                ErrorCode.INVALID_CONFIG,
                f"{HEARTBEAT_INTERVAL}: {heartbeat_ms} is not less than {SESSION_TIMEOUT}, which is {session_ms}",
            )
        return checked

    def _number(self, name: str, value: str | None) -> int:
        bounds = self.ranges.get(name)
        if bounds is None:
            known = ", ".join(GROUP_SETTINGS)
            raise MillstreamError(
                ErrorCode.INVALID_CONFIG, f"{name[:100]}: there is no such group setting to change; use {known}"
            )
        text = (value or "").strip()
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(bounds.high))):
            raise MillstreamError(
                ErrorCode.INVALID_CONFIG,
                f"{name}: {str(value)[:100]!r} is not a whole number from {bounds.low} to {bounds.high}",
            )
        number = int(text)
        if not bounds.low <= number <= bounds.high:
            raise MillstreamError(
                ErrorCode.INVALID_CONFIG, f"{name}: {number} is not between {bounds.low} and {bounds.high}"
            )
        return number
