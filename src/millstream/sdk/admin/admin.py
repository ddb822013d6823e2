"""What administrators ask for: settings, more partitions, fewer messages, sizes, the cluster, queries."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition, check_topic_name
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
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.responses import TopicView
from millstream.wire.client_connection import ApiRequest

__all__ = ["TO_THE_END", "AdminEngine"]

T = TypeVar("T")

TIMEOUT_S = 30.0
PAGE_TOPICS = 100
ROWS_MAX = 1_000

_LISTED_PARTITIONS = 2_000
_FIRST_LEGAL = "-"
"""Of the characters that a topic's name may have, the one that sorts first."""


class AdminEngine:
    """The part of a client that administers; reached as `client.admin`."""

    def __init__(self, asking: RetryingCaller) -> None:
        self._asking = asking
        self._cluster = asking.cluster

    # Settings.

    async def describe_settings(
        self, kind: ResourceKind, name: str, names: Sequence[str] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> list[ConfigSetting]:
        """The settings of a topic, a broker (its number) or a group, by name; these, or all."""
        request = admin_requests.describe_settings(kind, name, names)
        return await self._ask_owner(kind, name, request, Deadline(timeout_s))

    async def alter_settings(
        self,
        kind: ResourceKind,
        name: str,
        chosen: Mapping[str, str] | None = None,
        *,
        unset: Sequence[str] = (),
        validate_only: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Set some and unset others; INVALID_CONFIG, saying which, and nothing is changed when one is refused."""
        request = admin_requests.alter_settings(kind, name, chosen or {}, unset, validate_only=validate_only)
        await self._ask_owner(kind, name, request, Deadline(timeout_s))

    async def _ask_owner(self, kind: ResourceKind, name: str, request: ApiRequest[T], deadline: Deadline) -> T:
        """Ask the broker whose settings they are; of topics and groups every broker knows."""
        if kind is not ResourceKind.BROKER or not name:
            return await self._asking.anyone(request, deadline)
        if not (name.isascii() and name.isdigit()):
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"{name!r} is no broker's number")
        return await self._asking.broker(int(name), request, deadline)

    # Topics.

    async def create_partitions(
        self, topic: str, total: int, *, validate_only: bool = False, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Let a topic have `total` partitions; INVALID_PARTITIONS unless those are more than it has."""
        check_topic_name(topic)
        deadline = Deadline(timeout_s)
        timeout_ms = self._cluster.broker_timeout_ms(deadline)
        request = admin_requests.create_partitions(topic, total, timeout_ms, validate_only=validate_only)
        try:
            await administer(self._asking, self._cluster.controller, request, deadline, ErrorCode.INVALID_PARTITIONS)
        except AlreadyAppliedError as error:
            self._cluster.forget(topic)
            view = await self._asking.retrying(lambda: self._cluster.topic(topic, deadline), deadline, topic)
            if len(view.partitions) != total:
                raise MillstreamError(
                    ErrorCode.INVALID_PARTITIONS, f"topic {topic!r} has {len(view.partitions)} partitions by now"
                ) from error
        self._cluster.forget(topic)

    async def delete_records(
        self, places: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """Delete the messages before these offsets, or all (TO_THE_END); where each partition begins then."""
        deadline = Deadline(timeout_s)

        def request(share: Mapping[TopicPartition, int]) -> ApiRequest[dict[TopicPartition, int | MillstreamError]]:
            return admin_requests.delete_records(share, self._cluster.broker_timeout_ms(deadline))

        return await self._asking.leaders(places, request, deadline)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """Where each of these leader epochs ended in the log; -1 where that is not known."""
        return await self._asking.leaders(epochs, admin_requests.epoch_ends, Deadline(timeout_s))

    async def list_topics(
        self,
        *,
        limit: int = PAGE_TOPICS,
        after: str | None = None,
        internal: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> TopicPage:
        """At most `limit` topics in the order of their names, those behind `after`; the first page without it. The
        brokers' own are left out unless they are asked for (`internal`).

        A broker that cannot list in parts is asked for all of them, for every page.
        """
        deadline = Deadline(timeout_s)
        try:
            return await self._listed(limit, after, internal, deadline)
        except MillstreamError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
        view = await self._asking.retrying(lambda: self._cluster.refresh(None, deadline), deadline)
        shown = [each for each in view.topics.values() if internal or not each.is_internal]
        behind = sorted(each for each in shown if after is None or each.name > after)
        return _page(behind[: limit + 1], limit)

    async def _listed(self, limit: int, after: str | None, internal: bool, deadline: Deadline) -> TopicPage:
        cursor = None if after is None else TopicCursor(after + _FIRST_LEGAL, 0)
        topics: list[TopicView] = []
        while True:
            request = admin_requests.describe_topic_partitions(cursor, _LISTED_PARTITIONS)
            rows = await self._asking.anyone(request, deadline)
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
        """All brokers' data directories, with the bytes of these topics' partitions, or of all."""
        deadline = Deadline(timeout_s)
        view = await self._asking.retrying(lambda: self._cluster.refresh([], deadline), deadline)
        found: list[LogDirectory] = []
        for node_id in sorted(view.brokers):
            request = admin_requests.describe_log_dirs(node_id, topics)
            directories = await self._asking.broker(node_id, request, deadline)
            found += directories
        return found

    async def describe_cluster(self, *, timeout_s: float = TIMEOUT_S) -> ClusterDescription:
        """The cluster's id, its brokers and which of them is the controller."""
        return await self._asking.anyone(admin_requests.describe_cluster(), Deadline(timeout_s))

    async def query(self, sql: str, *, rows_max: int = ROWS_MAX, timeout_s: float = TIMEOUT_S) -> QueryResult:
        """Run one reading statement over the catalog's tables.

        INVALID_REQUEST, saying why, for one that cannot be run; UNSUPPORTED_VERSION from a broker that is not ours.
        """
        deadline = Deadline(timeout_s)
        connection = await self._asking.retrying(lambda: self._cluster.anyone(deadline), deadline)
        # Asked once: a statement that took too long would take too long again.
        request = admin_requests.query(sql, rows_max, self._cluster.broker_timeout_ms(deadline))
        return await connection.request(request, self._cluster.timeout_s(deadline))


def _page(topics: Sequence[TopicView], limit: int) -> TopicPage:
    shown = tuple(topics[:limit])
    return TopicPage(shown, shown[-1].name if len(topics) > limit else None)
