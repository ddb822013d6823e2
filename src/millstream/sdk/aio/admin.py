"""What administrators ask for: settings, more partitions, fewer messages, sizes, the cluster, queries."""

from collections.abc import Mapping, Sequence

from millstream.model.errors import ErrorCode
from millstream.model.names import TopicPartition
from millstream.sdk.admin.admin import PAGE_TOPICS, ROWS_MAX, TO_THE_END
from millstream.sdk.admin.admin_results import (
    ClusterDescription,
    ConfigSetting,
    LogDirectory,
    QueryResult,
    ResourceKind,
    TopicPage,
)
from millstream.sdk.admin.topic_sizes import PartitionSize, TopicSize, partition_sizes, topic_sizes
from millstream.sdk.aio.facade import AsyncEngineHandle, AsyncPortal
from millstream.sdk.arguments import (
    INT32_MAX,
    NAME_MAX,
    TEXT_MAX,
    as_names,
    check_kind,
    check_number,
    check_partitions,
    check_text,
    names_or_all,
    offsets_by_place,
)
from millstream.sdk.client_context import ClientContext
from millstream.sdk.responses import TopicView
from millstream.sdk.time_arguments import Time


class AsyncAdmin(AsyncEngineHandle):
    """The part of a client that administers; reached as `client.admin`."""

    def __init__(self, portal: AsyncPortal, context: ClientContext) -> None:
        super().__init__(portal, context, context.lifecycle)
        self._engine = context.cluster_queries.admin

    # Settings.

    async def describe_settings(
        self, kind: ResourceKind | str, name: str, names: Sequence[str] | None = None, *, timeout: Time = 30.0
    ) -> list[ConfigSetting]:
        """The settings of a "topic", a "broker" (its number) or a "group", by name; these, or all."""
        check_text("name", name, 0, NAME_MAX)
        resource, chosen, timeout_s = ResourceKind.named(kind), names_or_all("names", names), self._span_s(timeout)
        return await self._do(self._engine.describe_settings(resource, name, chosen, timeout_s=timeout_s))

    async def alter_settings(
        self,
        kind: ResourceKind | str,
        name: str,
        chosen: Mapping[str, str] | None = None,
        *,
        unset: Sequence[str] = (),
        validate_only: bool = False,
        timeout: Time = 30.0,
    ) -> None:
        """Set some and unset others; INVALID_CONFIG, saying which, and nothing is changed when one is refused."""
        check_text("name", name, 0, NAME_MAX)
        timeout_s, resource, left = self._span_s(timeout), ResourceKind.named(kind), as_names("unset", unset)
        await self._do(
            self._engine.alter_settings(
                resource, name, chosen, unset=left, validate_only=validate_only, timeout_s=timeout_s
            )
        )

    # Topics.

    async def create_partitions(
        self, topic: str, total: int, *, validate_only: bool = False, timeout: Time = 30.0
    ) -> None:
        """Let a topic have `total` partitions; INVALID_PARTITIONS unless those are more than it has."""
        check_number("total", total, 1, INT32_MAX, ErrorCode.INVALID_PARTITIONS)
        await self._do(
            self._engine.create_partitions(topic, total, validate_only=validate_only, timeout_s=self._span_s(timeout))
        )

    async def delete_records(
        self, places: Mapping[TopicPartition, int], *, timeout: Time = 30.0
    ) -> dict[TopicPartition, int]:
        """Delete the messages before these offsets, or all (-1); where each partition begins then."""
        before, timeout_s = offsets_by_place("places", places, TO_THE_END), self._span_s(timeout)
        return await self._do(self._engine.delete_records(before, timeout_s=timeout_s))

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, timeout: Time = 30.0
    ) -> dict[TopicPartition, int]:
        """The offset at which each of these leader epochs ended in the log; -1 where that is not known.

        Who has read further under an epoch than to its end has read messages that the log has lost.
        """
        known, timeout_s = offsets_by_place("epochs", epochs, 0), self._span_s(timeout)
        return await self._do(self._engine.epoch_ends(known, timeout_s=timeout_s))

    async def list_topics(
        self, *, limit: int = PAGE_TOPICS, after: str | None = None, internal: bool = False, timeout: Time = 30.0
    ) -> TopicPage:
        """At most `limit` topics in the order of their names, those behind `after`; the first page without it. The
        brokers' own are left out unless they are asked for (`internal`)."""
        check_number("limit", limit, 1, INT32_MAX)
        if after is not None:
            check_text("after", after, 0, NAME_MAX)
        timeout_s = self._span_s(timeout)
        return await self._do(
            self._engine.list_topics(limit=limit, after=after, internal=internal, timeout_s=timeout_s)
        )

    async def topic_sizes(self, topics: Sequence[TopicView], *, timeout: Time = 30.0) -> list[TopicSize]:
        """How many messages and bytes are in these topics; those that are deleted meanwhile are left out."""
        check_kind("topics", topics, Sequence)
        for each in topics:
            check_kind("topics", each, TopicView)
        return await self._do(topic_sizes(self._context.cluster_queries, topics, self._span_s(timeout)))

    async def partition_sizes(self, topic: TopicView, *, timeout: Time = 30.0) -> list[PartitionSize]:
        """Which offsets and how many bytes are in each partition of a topic."""
        check_kind("topic", topic, TopicView)
        return await self._do(partition_sizes(self._context.cluster_queries, topic, self._span_s(timeout)))

    # The cluster.

    async def describe_log_dirs(
        self, topics: Mapping[str, Sequence[int]] | None = None, *, timeout: Time = 30.0
    ) -> list[LogDirectory]:
        """All brokers' data directories, with the bytes of these topics' partitions, or of all."""
        if topics is not None:
            check_kind("topics", topics, Mapping)
            for name in as_names("topics", topics):
                check_partitions(topics[name], f"partitions of {name}")
        return await self._do(self._engine.describe_log_dirs(topics, timeout_s=self._span_s(timeout)))

    async def describe_cluster(self, *, timeout: Time = 30.0) -> ClusterDescription:
        """The cluster's id, its brokers and which of them is the controller."""
        return await self._do(self._engine.describe_cluster(timeout_s=self._span_s(timeout)))

    async def query(self, sql: str, *, rows_max: int = ROWS_MAX, timeout: Time = 30.0) -> QueryResult:
        """Run one reading statement over the catalog's tables.

        INVALID_REQUEST, saying why, for one that cannot be run; UNSUPPORTED_VERSION from a broker that is not ours.
        """
        check_text("sql", sql, 0, TEXT_MAX)
        check_number("rows_max", rows_max, 0, INT32_MAX)
        return await self._do(self._engine.query(sql, rows_max=rows_max, timeout_s=self._span_s(timeout)))
