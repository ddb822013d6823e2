# Written by scripts/sync.py from aio/admin.py: change that, and run it again.
"""`client.admin` changes settings and topics, deletes messages, reports sizes and queries the catalog."""

from collections.abc import Mapping, Sequence

from millstream.model.errors import ErrorCode
from millstream.model.names import TopicPartition
from millstream.model.setting_values import SettingValue
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
from millstream.sdk.sync.facade import EngineHandle, Portal
from millstream.sdk.time_arguments import Time


class Admin(EngineHandle):
    """Administers topics, settings and the cluster. Available as `client.admin`."""

    def __init__(self, portal: Portal, context: ClientContext) -> None:
        super().__init__(portal, context, context.lifecycle)
        self._engine = context.cluster_queries.admin

    # Settings.

    def describe_settings(
        self, kind: ResourceKind | str, name: str, names: Sequence[str] | None = None, *, timeout: Time = 30.0
    ) -> list[ConfigSetting]:
        """Return settings of a resource, sorted by name: the settings in `names`, or all.

        `kind` is "topic", "broker" or "group". `name` is the topic, the group, or the broker's number as text.
        """
        check_text("name", name, least=0, most=NAME_MAX)
        resource, chosen, timeout_s = ResourceKind.named(kind), names_or_all("names", names), self._span_s(timeout)
        return self._do(self._engine.describe_settings(resource, name, chosen, timeout_s=timeout_s))

    def alter_settings(
        self,
        kind: ResourceKind | str,
        name: str,
        chosen: Mapping[str, SettingValue] | None = None,
        *,
        unset: Sequence[str] = (),
        validate_only: bool = False,
        timeout: Time = 30.0,
    ) -> None:
        """Set the settings in `chosen` and reset those in `unset` to their defaults, all or none.

        Values are text, numbers or booleans. Durations and sizes may have units, such as "7d" or "64MiB".

        Raises INVALID_CONFIG, which names the invalid setting; then nothing is changed. `validate_only` checks the
        settings and changes nothing.
        """
        check_text("name", name, least=0, most=NAME_MAX)
        timeout_s, resource, left = self._span_s(timeout), ResourceKind.named(kind), as_names("unset", unset)
        self._do(
            self._engine.alter_settings(
                resource, name, chosen, unset=left, validate_only=validate_only, timeout_s=timeout_s
            )
        )

    # Topics.

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False, timeout: Time = 30.0) -> None:
        """Increase the number of partitions of a topic to `total`.

        Raises INVALID_PARTITIONS unless `total` is larger than the current number. `validate_only` only checks.
        """
        check_number("total", total, least=1, most=INT32_MAX, code=ErrorCode.INVALID_PARTITIONS)
        self._do(
            self._engine.create_partitions(topic, total, validate_only=validate_only, timeout_s=self._span_s(timeout))
        )

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout: Time = 30.0
    ) -> dict[TopicPartition, int]:
        """Delete the messages before these offsets; -1 deletes all. Returns the new log start offsets."""
        before, timeout_s = offsets_by_place("offsets", offsets, TO_THE_END), self._span_s(timeout)
        return self._do(self._engine.delete_records(before, timeout_s=timeout_s))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int], *, timeout: Time = 30.0) -> dict[TopicPartition, int]:
        """Return the end offset of each of these leader epochs; -1 if it is unknown.

        A reader that is past the end offset of its epoch has read messages that the log has lost since.
        """
        known, timeout_s = offsets_by_place("epochs", epochs, 0), self._span_s(timeout)
        return self._do(self._engine.epoch_ends(known, timeout_s=timeout_s))

    def list_topics(
        self, *, limit: int = PAGE_TOPICS, after: str | None = None, internal: bool = False, timeout: Time = 30.0
    ) -> TopicPage:
        """Return a page of at most `limit` topics, sorted by name, that follow the name `after`.

        Without `after` it is the first page. Internal topics are included only with `internal=True`.
        """
        check_number("limit", limit, least=1, most=INT32_MAX)
        if after is not None:
            check_text("after", after, least=0, most=NAME_MAX)
        timeout_s = self._span_s(timeout)
        return self._do(self._engine.list_topics(limit=limit, after=after, internal=internal, timeout_s=timeout_s))

    def topic_sizes(self, topics: Sequence[TopicView], *, timeout: Time = 30.0) -> list[TopicSize]:
        """Return the number of messages and bytes of each topic. Topics deleted meanwhile are left out."""
        check_kind("topics", topics, Sequence)
        for each in topics:
            check_kind("topics", each, TopicView)
        return self._do(topic_sizes(self._context.cluster_queries, topics, self._span_s(timeout)))

    def partition_sizes(self, topic: TopicView, *, timeout: Time = 30.0) -> list[PartitionSize]:
        """Return the offset range and the size in bytes of each partition of a topic."""
        check_kind("topic", topic, TopicView)
        return self._do(partition_sizes(self._context.cluster_queries, topic, self._span_s(timeout)))

    # The cluster.

    def describe_log_dirs(
        self, topics: Mapping[str, Sequence[int]] | None = None, *, timeout: Time = 30.0
    ) -> list[LogDirectory]:
        """Return the data directories of all brokers, with the sizes of these partitions, or of all partitions."""
        if topics is not None:
            check_kind("topics", topics, Mapping)
            for name in as_names("topics", topics):
                check_partitions(topics[name], f"partitions of {name}")
        return self._do(self._engine.describe_log_dirs(topics, timeout_s=self._span_s(timeout)))

    def describe_cluster(self, *, timeout: Time = 30.0) -> ClusterDescription:
        """Return the cluster id, the brokers, and the node id of the controller."""
        return self._do(self._engine.describe_cluster(timeout_s=self._span_s(timeout)))

    def query(self, sql: str, *, rows_max: int = ROWS_MAX, timeout: Time = 30.0) -> QueryResult:
        """Run one read-only SQL statement on the catalog's tables; returns at most `rows_max` rows.

        Raises INVALID_REQUEST with the reason if the statement cannot be run, and UNSUPPORTED_VERSION if the broker is
        not a Millstream broker.
        """
        check_text("sql", sql, least=0, most=TEXT_MAX)
        check_number("rows_max", rows_max, least=0, most=INT32_MAX)
        return self._do(self._engine.query(sql, rows_max=rows_max, timeout_s=self._span_s(timeout)))
