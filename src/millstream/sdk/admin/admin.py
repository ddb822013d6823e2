"""Runs administrative requests: settings, partitions, deletion of messages, sizes, the cluster, catalog queries."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition, check_topic_name
from millstream.model.setting_values import SettingValue
from millstream.sdk.admin import admin_requests
from millstream.sdk.admin.admin_requests import TO_THE_END
from millstream.sdk.admin.admin_results import (
    ClusterDescription,
    ConfigSetting,
    LogDirectory,
    QueryResult,
    ResourceKind,
    TopicCursor,
    TopicPage,
)
from millstream.sdk.admin.change_retry import AlreadyAppliedError, administer
from millstream.sdk.connection.address import parse_bootstrap
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.leader_call import ask_partitions
from millstream.sdk.responses import TopicView
from millstream.wire.client_connection import ApiRequest

__all__ = ["TO_THE_END", "AdminEngine"]

T = TypeVar("T")

TIMEOUT_S = 30.0
PAGE_TOPICS = 100
ROWS_MAX = 1_000

_LISTED_PARTITIONS = 2_000
_FIRST_LEGAL = "-"
"""The legal character of topic names that sorts first."""


class AdminEngine:
    """The engine of `client.admin`."""

    def __init__(self, caller: RetryingCaller) -> None:
        self._caller = caller
        self._cluster = caller.cluster

    # Settings.

    async def describe_settings(
        self, kind: ResourceKind, name: str, names: Sequence[str] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> list[ConfigSetting]:
        """Return these settings, or all, of a topic, a broker (by its number) or a group, sorted by name."""
        request = admin_requests.describe_settings(kind, name, names)
        return await self._ask_owner(kind, name, request, Deadline(timeout_s))

    async def alter_settings(
        self,
        kind: ResourceKind,
        name: str,
        chosen: Mapping[str, SettingValue] | None = None,
        *,
        unset: Sequence[str] = (),
        validate_only: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Set and unset settings, all or none; raises INVALID_CONFIG, which names the invalid setting."""
        request = admin_requests.alter_settings(kind, name, chosen or {}, unset, validate_only=validate_only)
        await self._ask_owner(kind, name, request, Deadline(timeout_s))

    async def _ask_owner(self, kind: ResourceKind, name: str, request: ApiRequest[T], deadline: Deadline) -> T:
        """Send a request to the broker that has the settings. Every broker has those of topics and groups."""
        if kind is not ResourceKind.BROKER or not name:
            return await self._caller.anyone(request, deadline)
        if not (name.isascii() and name.isdigit()):
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"{name!r} is not a broker number")
        return await self._caller.broker(int(name), request, deadline)

    # Topics.

    async def create_partitions(
        self, topic: str, total: int, *, validate_only: bool = False, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Increase the partitions of a topic to `total`; raises INVALID_PARTITIONS unless that is an increase."""
        check_topic_name(topic)
        deadline = Deadline(timeout_s)
        timeout_ms = self._cluster.broker_timeout_ms(deadline)
        request = admin_requests.create_partitions(topic, total, timeout_ms=timeout_ms, validate_only=validate_only)
        try:
            await administer(self._caller, self._cluster.controller, request, deadline, ErrorCode.INVALID_PARTITIONS)
        except AlreadyAppliedError as error:
            self._cluster.forget(topic)
            view = await self._caller.retrying(lambda: self._cluster.topic(topic, deadline), deadline, topic)
            if len(view.partitions) != total:
                raise MillstreamError(
                    ErrorCode.INVALID_PARTITIONS, f"topic {topic!r} now has {len(view.partitions)} partitions"
                ) from error
        self._cluster.forget(topic)

    async def delete_records(
        self, places: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """Delete messages before these offsets, or all (TO_THE_END); returns the new log start offsets."""
        deadline = Deadline(timeout_s)

        def request(share: Mapping[TopicPartition, int]) -> ApiRequest[dict[TopicPartition, int | MillstreamError]]:
            return admin_requests.delete_records(share, self._cluster.broker_timeout_ms(deadline))

        return await ask_partitions(self._caller, places, request, deadline)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each of these leader epochs; -1 if it is unknown."""
        return await ask_partitions(self._caller, epochs, admin_requests.epoch_ends, Deadline(timeout_s))

    async def list_topics(
        self,
        *,
        limit: int = PAGE_TOPICS,
        after: str | None = None,
        internal: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> TopicPage:
        """Return a page of at most `limit` topics, sorted by name, that follow the name `after`.

        Internal topics are included only with `internal`. A broker without DescribeTopicPartitions returns all topics
        for every page.
        """
        deadline = Deadline(timeout_s)
        try:
            return await self._listed(limit, after, internal, deadline)
        except MillstreamError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
        view = await self._caller.retrying(lambda: self._cluster.refresh(None, deadline), deadline)
        shown = [each for each in view.topics.values() if internal or not each.is_internal]
        behind = sorted(each for each in shown if after is None or each.name > after)
        return _page(behind[: limit + 1], limit)

    async def _listed(self, limit: int, after: str | None, internal: bool, deadline: Deadline) -> TopicPage:
        cursor = None if after is None else TopicCursor(after + _FIRST_LEGAL, 0)
        topics: list[TopicView] = []
        while True:
            request = admin_requests.describe_topic_partitions(cursor, _LISTED_PARTITIONS)
            rows = await self._caller.anyone(request, deadline)
            for view in rows.topics:
                if view.is_internal and not internal:
                    continue
                if topics and topics[-1].name == view.name:
                    view = view._replace(partitions=topics.pop().partitions + view.partitions)
                topics.append(view)
            cursor = rows.cursor
            if cursor is None or len(topics) > limit:
                return _page(topics, limit)

    # The cluster.

    async def describe_log_dirs(
        self, topics: Mapping[str, Sequence[int]] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> list[LogDirectory]:
        """Return the data directories of all brokers, with the sizes of these partitions, or of all."""
        deadline = Deadline(timeout_s)
        view = await self._caller.retrying(lambda: self._cluster.refresh([], deadline), deadline)
        found: list[LogDirectory] = []
        for node_id in sorted(view.brokers):
            request = admin_requests.describe_log_dirs(node_id, topics)
            directories = await self._caller.broker(node_id, request, deadline)
            found += directories
        return found

    async def describe_cluster(self, *, timeout_s: float = TIMEOUT_S) -> ClusterDescription:
        """Return the cluster id, the brokers and the controller's number."""
        return await self._caller.anyone(admin_requests.describe_cluster(), Deadline(timeout_s))

    async def query(self, sql: str, *, rows_max: int = ROWS_MAX, timeout_s: float = TIMEOUT_S) -> QueryResult:
        """Run one read-only SQL statement on the catalog's tables.

        Raises INVALID_REQUEST with the reason if the statement cannot be run, and UNSUPPORTED_VERSION if the broker is
        not a Millstream broker. Raises QUERY_QUEUE_FULL if too many queries wait on the broker.
        """
        deadline = Deadline(timeout_s)
        shared = await self._caller.retrying(lambda: self._cluster.anyone(deadline), deadline)
        (address,) = parse_bootstrap(shared.address)
        # Its own connection: a long query would delay the responses to others, and the broker ends the query when the
        # connection closes, as it does when this call is cancelled.
        async with self._cluster.polling(address, deadline) as connection:
            # Not retried: a statement that timed out would time out again.
            request = admin_requests.query(sql, rows_max=rows_max, timeout_ms=self._cluster.broker_timeout_ms(deadline))
            return await connection.request(request, self._cluster.timeout_s(deadline))


def _page(topics: Sequence[TopicView], limit: int) -> TopicPage:
    shown = tuple(topics[:limit])
    return TopicPage(shown, shown[-1].name if len(topics) > limit else None)
