# Written by scripts/sync.py from aio/admin.py: change that, and run it again.
"""What administrators ask for: settings, more partitions, fewer messages, sizes, the cluster, queries."""

from collections.abc import Mapping, Sequence

from penstock.model.names import TopicPartition
from penstock.sdk.admin import PAGE_TOPICS, ROWS_MAX
from penstock.sdk.admin_answers import ClusterDescription, LogDirectory, QueryResult, ResourceKind, Setting, TopicPage
from penstock.sdk.answers import TopicView
from penstock.sdk.home import Home
from penstock.sdk.sync.face import Part, Portal
from penstock.sdk.times import Time
from penstock.sdk.topic_sizes import PartitionSize, TopicSize, partition_sizes, topic_sizes


class Admin(Part):
    """The part of a client that administers; reached as `client.admin`."""

    def __init__(self, portal: Portal, home: Home) -> None:
        super().__init__(portal, home, home.life)
        self._engine = home.idle.admin

    # Settings.

    def describe_settings(
        self, kind: ResourceKind | str, name: str, names: Sequence[str] | None = None, *, timeout: Time = 30.0
    ) -> list[Setting]:
        """The settings of a "topic", a "broker" (its number) or a "group", by name; these, or all."""
        return self._do(
            self._engine.describe_settings(ResourceKind.named(kind), name, names, timeout_s=self._span_s(timeout))
        )

    def alter_settings(
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
        timeout_s = self._span_s(timeout)
        resource = ResourceKind.named(kind)
        self._do(
            self._engine.alter_settings(
                resource, name, chosen, unset=unset, validate_only=validate_only, timeout_s=timeout_s
            )
        )

    # Topics.

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False, timeout: Time = 30.0) -> None:
        """Let a topic have `total` partitions; INVALID_PARTITIONS unless those are more than it has."""
        self._do(
            self._engine.create_partitions(topic, total, validate_only=validate_only, timeout_s=self._span_s(timeout))
        )

    def delete_records(
        self, places: Mapping[TopicPartition, int], *, timeout: Time = 30.0
    ) -> dict[TopicPartition, int]:
        """Delete the messages before these offsets, or all (-1); where each partition begins then."""
        return self._do(self._engine.delete_records(places, timeout_s=self._span_s(timeout)))

    def list_topics(
        self, *, limit: int = PAGE_TOPICS, after: str | None = None, internal: bool = False, timeout: Time = 30.0
    ) -> TopicPage:
        """At most `limit` topics in the order of their names, those behind `after`; the first page without it. The
        brokers' own are left out unless they are asked for (`internal`)."""
        timeout_s = self._span_s(timeout)
        return self._do(self._engine.list_topics(limit=limit, after=after, internal=internal, timeout_s=timeout_s))

    def topic_sizes(self, topics: Sequence[TopicView], *, timeout: Time = 30.0) -> list[TopicSize]:
        """How many messages and bytes are in these topics; those that are deleted meanwhile are left out."""
        return self._do(topic_sizes(self._home.idle, topics, self._span_s(timeout)))

    def partition_sizes(self, topic: TopicView, *, timeout: Time = 30.0) -> list[PartitionSize]:
        """Which offsets and how many bytes are in each partition of a topic."""
        return self._do(partition_sizes(self._home.idle, topic, self._span_s(timeout)))

    # The cluster.

    def describe_log_dirs(
        self, topics: Mapping[str, Sequence[int]] | None = None, *, timeout: Time = 30.0
    ) -> list[LogDirectory]:
        """All brokers' data directories, with the bytes of these topics' partitions, or of all."""
        return self._do(self._engine.describe_log_dirs(topics, timeout_s=self._span_s(timeout)))

    def describe_cluster(self, *, timeout: Time = 30.0) -> ClusterDescription:
        """The cluster's id, its brokers and which of them is the controller."""
        return self._do(self._engine.describe_cluster(timeout_s=self._span_s(timeout)))

    def query(self, sql: str, *, rows_max: int = ROWS_MAX, timeout: Time = 30.0) -> QueryResult:
        """Run one reading statement over the catalog's tables.

        INVALID_REQUEST, saying why, for one that cannot be run; UNSUPPORTED_VERSION from a broker that is not ours.
        """
        return self._do(self._engine.query(sql, rows_max=rows_max, timeout_s=self._span_s(timeout)))
